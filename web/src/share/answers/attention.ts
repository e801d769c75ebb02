/** Answers of the attention views; see `app/server/views/attention`. */
import { Problem } from "../../lib/api";
import type { Scale } from "../../lib/colours";
import { search } from "../beams";
import type { Shared } from "../shared";
import { dot, largest, logSumExp, rowOf } from "../tensors";
import { textOf } from "./beams";
import { asBytes, blockFor, cellsOf, entropy, FULL, HIDDEN, type Span } from "./cells";
import type { Binary } from "./index";
import { headAt, type Layer, layersOf, type TextQuestion } from "./looked";
import { recorded } from "./python";

/** Maximum number of cells on the longer side of a map. */
const MOST = 512;
/** Maximum number of cells on the longer side for float32. */
const MOST_NUMBERS = 480;
/** Maximum number of cells on the longer side of a map if there is one for each head. */
const SMALL = 64;
/** Coverage from which a source token counts as covered. */
const ENOUGH = 0.5;

interface MapQuestion extends TextQuestion {
  head: string;
  queries?: Span;
  keys?: Span;
  px?: number;
  form?: "uint8" | "float32";
  scale?: Scale;
}

export function map(shared: Shared, question: MapQuestion): Binary {
  const { head, scale = "linear", form = "uint8" } = question;
  const { layer, place } = headAt(layersOf(shared, question), head);
  const [T, S] = layer.shape;
  const queries = span(question.queries ?? null, T, "queries");
  const keys = span(question.keys ?? null, S, "keys");
  const most = Math.min(question.px ?? MOST, form === "float32" ? MOST_NUMBERS : MOST);
  const block = blockFor(Math.max(queries[1] - queries[0], keys[1] - keys[0]), most);
  const cells = cellsOf((query) => layer.weights(place, query), queries, keys, block);
  const labels = { queries: layer.labels.queries.slice(...queries), keys: layer.labels.keys.slice(...keys) };
  const header = {
    head, pass: "browser", scale, agg: "max", form, shape: cells.shape, block, queries, keys, size: [T, S], hidden: HIDDEN, full: FULL,
    row_sums: cells.rowSums, largest: cells.largest, labels: block === 1 ? labels : null,
    python: recorded(shared, question, [`${layer.site}.pattern`], [
      `weights = found["${head}.pattern"][0]  # (T, S); 0 where masked`,
      `print(weights[${queries[0]}:${queries[1]}, ${keys[0]}:${keys[1]}].tolist())`,
    ]),
  };
  return { header, data: form === "float32" ? cells.values : asBytes(cells.values, scale) };
}

export function score(shared: Shared, question: TextQuestion & { head: string; query: number; key: number }): object {
  const { head, query, key } = question;
  const { layer, place } = headAt(layersOf(shared, question), head);
  const [T, S] = layer.shape;
  const K = layer.headWidth;
  const own = layer.pass;
  span([query, query + 1], T, "queries");
  span([key, key + 1], S, "keys");
  const q = rowOf(own.q, query).slice(place * K, (place + 1) * K);
  const k = rowOf(own.k, key).slice(own.of.asks[place]! * K, (own.of.asks[place]! + 1) * K);
  const [from, to] = layer.seen(query);
  const scores = Float64Array.from({ length: to - from }, (_, at) => layer.score(place, query, from + at));
  const logSum = logSumExp(scores);
  const all = Array.from({ length: S }, (_, at) => (at >= from && at < to ? scores[at - from]! : null));
  const product = dot(q, k);
  const value = all[key] ?? null;
  const site = head.slice(0, head.lastIndexOf("."));
  return {
    head, pass: "browser", query, key, query_label: layer.labels.queries[query], key_label: layer.labels.keys[key], q: [...q], k: [...k],
    products: Array.from(q, (each, at) => each * k[at]!), dot: product, width: K, scaled: product / Math.sqrt(K),
    bias: value === null || layer.sight.bias === null ? 0 : layer.sight.bias(own.of.heads[place]!, query - key),
    score: value, masked: value === null,
    row: { scores: all, weights: all.map((each) => (each === null ? null : Math.exp(each - logSum))), labels: layer.labels.keys },
    log_sum: logSum, weight: value === null ? 0 : Math.exp(value - logSum),
    python: recorded(shared, question, [`${site}.q`, `${site}.k`, `${site}.scores`, `${site}.pattern`], [
      `q = found["${site}.q"][0, ${place}, ${query}]`,
      `k = found["${site}.k"][0, ${own.of.asks[place]!}, ${key}]  # key head of this query head`,
      "print((q * k).tolist(), float(q @ k), float(q @ k) / len(q) ** 0.5)",
      `print(found["${head}.scores"][0, ${query}].tolist())  # -inf where masked`,
      `print(found["${head}.pattern"][0, ${query}].tolist())`,
    ]),
  };
}

export function heads(shared: Shared, question: TextQuestion & { sites?: string[] | null; px?: number; scale?: Scale }): Binary {
  const { sites = null, scale = "linear" } = question;
  const layers = [...layersOf(shared, question).values()].filter((layer) => sites === null || sites.includes(layer.site));
  const block = blockFor(Math.max(1, ...layers.flatMap((layer) => layer.shape)), Math.min(question.px ?? SMALL, SMALL));
  const found: object[] = [];
  const parts: Uint8Array[] = [];
  let at = 0;
  for (const layer of layers) {
    layer.pass.of.heads.forEach((head, place) => {
      const cells = cellsOf((query) => layer.weights(place, query), [0, layer.shape[0]], [0, layer.shape[1]], block);
      const nats = entropy(layer.pass.weights[place]!.data) / layer.shape[0];
      found.push({ head: `${layer.site}.${head}`, at, shape: cells.shape, size: layer.shape, largest: cells.largest, entropy: nats });
      parts.push(asBytes(cells.values, scale));
      at += cells.values.length;
    });
  }
  const data = new Uint8Array(at);
  at = 0;
  for (const part of parts) {
    data.set(part, at);
    at += part.length;
  }
  const header = {
    pass: "browser", block, form: "uint8", scale, hidden: HIDDEN, full: FULL, heads: found,
    python: recorded(shared, question, layers.map((layer) => `${layer.site}.pattern`), [
      "for name, weights in found.items():",
      "    print(name, weights[0].tolist())  # (H, T, S)",
    ]),
  };
  return { header, data };
}

export function focus(shared: Shared, question: TextQuestion & { place: number; stack?: "enc" | "dec" | null; top?: number }): Binary {
  const layers = [...layersOf(shared, question).values()];
  const stack = question.stack ?? layers.at(-1)?.site.slice(0, 3);
  const own = layers.filter((layer) => layer.site.startsWith(`${stack}.`));
  if (own.length === 0) throw new Problem(`This model has no stack ${stack} with heads.`, "Choose the other stack.");
  const { place, top = 8 } = question;
  span([place, place + 1], own[0]!.shape[0], "tokens");
  const found: object[] = [];
  const rows: number[] = [];
  for (const layer of own) {
    layer.pass.of.heads.forEach((head, at) => {
      const row = layer.weights(at, place);
      found.push({ head: `${layer.site}.${head}`, part: partOf(layer), at: rows.length, cells: row.length, keys: row.length, ...strongest(row, top) });
      rows.push(...row);
    });
  }
  const header = {
    pass: "browser", place, stack, label: own[0]!.labels.queries[place], block: 1, top, heads: found,
    labels: Object.fromEntries(own.map((layer) => [partOf(layer), layer.labels.keys])),
    python: recorded(shared, question, own.map((layer) => `${layer.site}.pattern`), [
      "for name, weights in found.items():",
      `    print(name, weights[0, :, ${place}].tolist())  # a row for each head`,
    ]),
  };
  return { header, data: Float32Array.from(rows) };
}

export function alignment(shared: Shared, question: TextQuestion & { site?: string | null; head?: number | null; beams?: number }): Binary {
  const cross = [...layersOf(shared, question).values()].filter((layer) => layer.site.endsWith(".cross"));
  const layer = question.site == null ? cross.at(-1) : cross.find((each) => each.site === question.site);
  if (layer === undefined) throw new Problem(`There is no cross-attention layer ${question.site} in this model.`, `Choose one of ${cross.map((each) => each.site).join(", ")}.`);
  const head = question.head ?? null;
  const places = head === null ? layer.pass.of.heads.map((_, place) => place) : [layer.placeOf(head)];
  const [T, S] = layer.shape;
  const mean = (query: number) => {
    const row = new Float64Array(S);
    for (const place of places) layer.weights(place, query).forEach((weight, key) => (row[key]! += weight / places.length));
    return row;
  };
  const block = blockFor(Math.max(T, S), MOST_NUMBERS);
  const cells = cellsOf(mean, [0, T], [0, S], block);
  const coverage = new Array<number>(S).fill(0);
  const spread = Array.from({ length: T }, (_, query) => {
    const row = mean(query);
    row.forEach((weight, key) => (coverage[key]! += weight));
    return entropy(row);
  });
  const header = {
    site: layer.site, pass: "browser", head, form: "float32", shape: cells.shape, block, size: [T, S], hidden: HIDDEN, full: FULL, scale: "linear",
    labels: { target: layer.labels.queries, source: layer.labels.keys },
    target: shared.subject(question.text, question.target ?? null).target, written: question.target == null, entropy: spread,
    coverage, covered: coverage.filter((each) => each >= ENOUGH).length / S, enough: ENOUGH, row_sums: cells.rowSums,
    largest: cells.largest, hypotheses: hypotheses(shared, question.text, question.beams ?? 4),
    python: recorded(shared, question, [`${layer.site}.pattern`], [
      `weights = found["${layer.site}.pattern"][0].double()${head === null ? ".mean(0)" : `[${places[0]}]`}  # (T, S)`,
      "print(weights.tolist())",
      "print(weights.sum(0).tolist())  # coverage",
    ]),
  };
  return { header, data: cells.values };
}

/** Results of beam search with this number of beams and the run's other settings. */
function hypotheses(shared: Shared, text: string, beams: number): object[] {
  if (beams === 0) return [];
  const found = search(shared, text, { ...shared.header.sample, beams }, beams);
  return found.map(({ tokens, score, ended }) => ({ text: textOf(shared, text, tokens), score, tokens: tokens.length, ended }));
}

function partOf(layer: Layer): string {
  return layer.site.replace(/\.\d+\./, ".");
}

/** The keys with the largest weights, and the sum of the other weights. */
function strongest(row: Float64Array, count: number): { top: { key: number; weight: number }[]; rest: number } {
  const weights = row.map((weight) => (Number.isNaN(weight) ? 0 : weight));
  const best = largest(weights, count).filter((key) => weights[key]! > 0);
  const rest = weights.reduce((sum, weight, key) => (best.includes(key) ? sum : sum + weight), 0);
  return { top: best.map((key) => ({ key, weight: weights[key]! })), rest };
}

/** A range of positions; null: all positions. */
function span(asked: Span, length: number, what: string): [number, number] {
  const [start, stop] = asked ?? [0, length];
  if (start >= 0 && start < stop && stop <= length) return [start, stop];
  throw new Problem(`The ${what} ${start} to ${stop - 1} are not within the ${length} tokens.`, `Choose positions from 0 to ${length - 1}.`);
}
