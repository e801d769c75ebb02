/** Answers of the attention views; see `app/server/views/attention`. */
import { GlassError } from "../../lib/api";
import type { Scale } from "../../lib/colours";
import { counted } from "../../lib/format";
import { search } from "../beams";
import type { SharedFile } from "../shared-file";
import { dot, largest, logSumExp, rowOf } from "../tensors";
import { attentionLayers, findHead, type Layer, type TextQuestion } from "./attention-layers";
import { textOf } from "./beams";
import { asBytes, blockFor, cellsOf, entropy, FULL_BYTE, MASKED_BYTE, type Span } from "./cells";
import type { Binary } from "./index";
import { recordingScript } from "./python";

/** Maximum number of cells on the longer side of a map. */
const MAX_CELLS = 512;
/** Maximum number of cells on the longer side for float32. */
const MAX_FLOAT_CELLS = 480;
/** Maximum number of cells on the longer side of a map if there is one for each head. */
const MAX_HEAD_CELLS = 64;
/** Coverage from which a source token counts as covered. */
const COVERED = 0.5;

interface MapQuestion extends TextQuestion {
  head: string;
  queries?: Span;
  keys?: Span;
  px?: number;
  form?: "uint8" | "float32";
  scale?: Scale;
}

export function map(shared: SharedFile, question: MapQuestion): Binary {
  const { head, scale = "linear", form = "uint8" } = question;
  const { layer, index } = findHead(attentionLayers(shared, question), head);
  const [T, S] = layer.shape;
  const queries = span(question.queries ?? null, T, "queries");
  const keys = span(question.keys ?? null, S, "keys");
  const maxCells = Math.min(question.px ?? MAX_CELLS, form === "float32" ? MAX_FLOAT_CELLS : MAX_CELLS);
  const block = blockFor(Math.max(queries[1] - queries[0], keys[1] - keys[0]), maxCells);
  const cells = cellsOf((query) => layer.weights(index, query), queries, keys, block);
  const labels = { queries: layer.labels.queries.slice(...queries), keys: layer.labels.keys.slice(...keys) };
  const header = {
    head, pass: "browser", scale, agg: "max", form, shape: cells.shape, block, queries, keys, size: [T, S], hidden: MASKED_BYTE, full: FULL_BYTE,
    row_sums: cells.rowSums, largest: cells.largest, labels: block === 1 ? labels : null,
    python: recordingScript(shared, question, [`${layer.site}.pattern`], [
      `weights = found["${head}.pattern"][0]  # (T, S); 0 where masked`,
      `print(weights[${queries[0]}:${queries[1]}, ${keys[0]}:${keys[1]}].tolist())`,
    ]),
  };
  return { header, data: form === "float32" ? cells.values : asBytes(cells.values, scale) };
}

export function score(shared: SharedFile, question: TextQuestion & { head: string; query: number; key: number }): object {
  const { head, query, key } = question;
  const { layer, index } = findHead(attentionLayers(shared, question), head);
  const [T, S] = layer.shape;
  const K = layer.headWidth;
  const own = layer.pass;
  span([query, query + 1], T, "queries");
  span([key, key + 1], S, "keys");
  const q = rowOf(own.q, query).slice(index * K, (index + 1) * K);
  const keyHead = own.parameters.keyHeadIndices[index]!;
  const k = rowOf(own.k, key).slice(keyHead * K, (keyHead + 1) * K);
  const [from, to] = layer.allowedKeys(query);
  const scores = Float64Array.from({ length: to - from }, (_, at) => layer.score(index, query, from + at));
  const logSum = logSumExp(scores);
  const all = Array.from({ length: S }, (_, at) => (at >= from && at < to ? scores[at - from]! : null));
  const product = dot(q, k);
  const value = all[key] ?? null;
  const site = head.slice(0, head.lastIndexOf("."));
  return {
    head, pass: "browser", query, key, query_label: layer.labels.queries[query], key_label: layer.labels.keys[key], q: [...q], k: [...k],
    products: Array.from(q, (each, at) => each * k[at]!), dot: product, width: K, scaled: product / Math.sqrt(K),
    bias: value === null || layer.maskAndBias.bias === null ? 0 : layer.maskAndBias.bias(own.parameters.heads[index]!, query - key),
    score: value, masked: value === null,
    row: { scores: all, weights: all.map((each) => (each === null ? null : Math.exp(each - logSum))), labels: layer.labels.keys },
    log_sum: logSum, weight: value === null ? 0 : Math.exp(value - logSum),
    python: recordingScript(shared, question, [`${site}.q`, `${site}.k`, `${site}.scores`, `${site}.pattern`], [
      `q = found["${site}.q"][0, ${index}, ${query}]`,
      `k = found["${site}.k"][0, ${keyHead}, ${key}]  # key head of this query head`,
      "print((q * k).tolist(), float(q @ k), float(q @ k) / len(q) ** 0.5)",
      `print(found["${head}.scores"][0, ${query}].tolist())  # -inf where masked`,
      `print(found["${head}.pattern"][0, ${query}].tolist())`,
    ]),
  };
}

export function heads(shared: SharedFile, question: TextQuestion & { sites?: string[] | null; px?: number; scale?: Scale }): Binary {
  const { sites = null, scale = "linear" } = question;
  const layers = [...attentionLayers(shared, question).values()].filter((layer) => sites === null || sites.includes(layer.site));
  const block = blockFor(Math.max(1, ...layers.flatMap((layer) => layer.shape)), Math.min(question.px ?? MAX_HEAD_CELLS, MAX_HEAD_CELLS));
  const found: object[] = [];
  const parts: Uint8Array[] = [];
  let at = 0;
  for (const layer of layers) {
    layer.pass.parameters.heads.forEach((head, index) => {
      const cells = cellsOf((query) => layer.weights(index, query), [0, layer.shape[0]], [0, layer.shape[1]], block);
      const nats = entropy(layer.pass.weights[index]!.data) / layer.shape[0];
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
    pass: "browser", block, form: "uint8", scale, hidden: MASKED_BYTE, full: FULL_BYTE, heads: found,
    python: recordingScript(shared, question, layers.map((layer) => `${layer.site}.pattern`), [
      "for name, weights in found.items():",
      "    print(name, weights[0].tolist())  # (H, T, S)",
    ]),
  };
  return { header, data };
}

export function focus(shared: SharedFile, question: TextQuestion & { place: number; stack?: "enc" | "dec" | null; top?: number }): Binary {
  const layers = [...attentionLayers(shared, question).values()];
  const stack = question.stack ?? layers.at(-1)?.site.slice(0, 3);
  const own = layers.filter((layer) => layer.site.startsWith(`${stack}.`));
  if (own.length === 0) throw new GlassError(`This model has no stack ${stack} with heads.`, "Choose the other stack.");
  const { place: position, top = 8 } = question;
  span([position, position + 1], own[0]!.shape[0], "tokens");
  const found: object[] = [];
  const rows: number[] = [];
  for (const layer of own) {
    layer.pass.parameters.heads.forEach((head, index) => {
      const row = layer.weights(index, position);
      found.push({ head: `${layer.site}.${head}`, part: partOf(layer), at: rows.length, cells: row.length, keys: row.length, ...strongest(row, top) });
      rows.push(...row);
    });
  }
  const header = {
    pass: "browser", place: position, stack, label: own[0]!.labels.queries[position], block: 1, top, heads: found,
    labels: Object.fromEntries(own.map((layer) => [partOf(layer), layer.labels.keys])),
    python: recordingScript(shared, question, own.map((layer) => `${layer.site}.pattern`), [
      "for name, weights in found.items():",
      `    print(name, weights[0, :, ${position}].tolist())  # a row for each head`,
    ]),
  };
  return { header, data: Float32Array.from(rows) };
}

export function alignment(shared: SharedFile, question: TextQuestion & { site?: string | null; head?: number | null; beams?: number }): Binary {
  const cross = [...attentionLayers(shared, question).values()].filter((layer) => layer.site.endsWith(".cross"));
  const layer = question.site == null ? cross.at(-1) : cross.find((each) => each.site === question.site);
  if (layer === undefined) throw new GlassError(`There is no cross-attention layer ${question.site} in this model.`, `Choose one of ${cross.map((each) => each.site).join(", ")}.`);
  const head = question.head ?? null;
  const indices = head === null ? layer.pass.parameters.heads.map((_, index) => index) : [layer.indexOf(head)];
  const [T, S] = layer.shape;
  const mean = (query: number) => {
    const row = new Float64Array(S);
    for (const index of indices) layer.weights(index, query).forEach((weight, key) => (row[key]! += weight / indices.length));
    return row;
  };
  const block = blockFor(Math.max(T, S), MAX_FLOAT_CELLS);
  const cells = cellsOf(mean, [0, T], [0, S], block);
  const coverage = new Array<number>(S).fill(0);
  const entropies = Array.from({ length: T }, (_, query) => {
    const row = mean(query);
    row.forEach((weight, key) => (coverage[key]! += weight));
    return entropy(row);
  });
  const header = {
    site: layer.site, pass: "browser", head, form: "float32", shape: cells.shape, block, size: [T, S], hidden: MASKED_BYTE, full: FULL_BYTE, scale: "linear",
    labels: { target: layer.labels.queries, source: layer.labels.keys },
    target: shared.subject(question.text, question.target ?? null).target, written: question.target == null, entropy: entropies,
    coverage, covered: coverage.filter((each) => each >= COVERED).length / S, enough: COVERED, row_sums: cells.rowSums,
    largest: cells.largest, hypotheses: hypotheses(shared, question.text, question.beams ?? 4),
    python: recordingScript(shared, question, [`${layer.site}.pattern`], [
      `weights = found["${layer.site}.pattern"][0].double()${head === null ? ".mean(0)" : `[${indices[0]}]`}  # (T, S)`,
      "print(weights.tolist())",
      "print(weights.sum(0).tolist())  # coverage",
    ]),
  };
  return { header, data: cells.values };
}

/** Results of beam search with this number of beams and the run's other settings. */
function hypotheses(shared: SharedFile, text: string, beams: number): object[] {
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
function span(requested: Span, length: number, what: string): [number, number] {
  const [start, stop] = requested ?? [0, length];
  if (start >= 0 && start < stop && stop <= length) return [start, stop];
  throw new GlassError(`The ${what} [${start}, ${stop}) are empty, or are not within the ${counted(length, "tokens")}.`, `Choose positions from 0 to ${length - 1}.`);
}
