/**
 * A logit as the sum of the contributions of the model's parts. The library's `inspection/receipt/parts.py` explains the
 * sum and its norms. With the scale σ of the final norm held fixed, norm and head are linear in the residual stream.
 */
import type { Part as Weights, PartPass } from "../model";
import type { Shared, Subject } from "../shared";
import { type Affine, dot, type NormKind, rowOf, spread } from "../tensors";

export interface Part {
  kind: string;
  layer: number | null;
  head: number | null;
  value: number;
  /** Contributions of the tokens to `value`; null if the part reads no tokens. */
  sources: Float64Array | null;
}

/** All parts of a logit, in the order of the model, averaged over the positions that the head reads. */
export function splitLogit(shared: Shared, subject: Subject, reads: readonly number[], token: number, against: number | null): Part[] {
  const [w, bias] = headRow(shared, token, against);
  let whole: Part[] | null = null;
  for (const place of reads) {
    const parts = [...new At(shared, subject, place).parts(w.map((each) => each / reads.length), bias / reads.length)];
    whole = whole === null ? parts : whole.map((part, at) => added(part, parts[at]!));
  }
  return whole ?? [];
}

export function nameOfPart({ kind, layer, head }: Part): string {
  return [...(layer === null ? [] : [`layer ${layer}`]), kind, ...(head === null ? [] : [String(head)])].join(" ");
}

function added(one: Part, other: Part): Part {
  const sources = one.sources === null ? null : one.sources.map((value, at) => value + other.sources![at]!);
  return { ...one, value: one.value + other.value, sources };
}

/** Row and bias of a token in the output head, minus those of `against`. */
function headRow({ model }: Shared, token: number, against: number | null): [Float64Array, number] {
  const table = model.weights.find("head.weight") ?? model.weights.get("embedding.tokens.weight");
  const biases = model.weights.find("head.bias")?.data;
  const [row, other] = [token, against].map((id) => (id === null ? null : table.data.subarray(id * table.columns, (id + 1) * table.columns)));
  const w = Float64Array.from(row!, (value, at) => value - (other ? other[at]! : 0));
  return [w, (biases?.[token] ?? 0) - (against === null ? 0 : (biases?.[against] ?? 0))];
}

/** The vector u with u · x = w · (norm(x) without its bias), the scale of the norm held fixed at its value for x. */
function through(own: Affine | null, kind: NormKind, epsilon: number, x: Float64Array, w: Float64Array): Float64Array {
  if (own === null || kind === "none") return w;
  const { scale } = spread(x, kind, epsilon);
  const g = w.map((value, at) => value * own.weight.data[at]!);
  const mean = kind === "layernorm" ? g.reduce((sum, value) => sum + value, 0) / g.length : 0;
  return g.map((value) => (value - mean) / scale);
}

/** The parts at one position. */
class At {
  constructor(readonly shared: Shared, readonly subject: Subject, readonly place: number) {}

  *parts(w: Float64Array, bias: number): Generator<Part> {
    const { model } = this.shared;
    const pass = this.subject.pass.stack;
    const u = this.#through(model.last.norm, rowOf(pass.streams.at(-1)!, this.place), w);
    yield* this.#embedded(u);
    for (const [layer, made] of pass.blocks.entries()) {
      for (const [at, part] of made.entries()) yield* this.#part(part, model.last.blocks[layer]![at]!, u, layer);
    }
    const beta = model.last.norm?.bias;
    if (beta) yield plain("final norm bias", null, dot(w, beta.data));
    if (model.weights.find("head.bias")) yield plain("head bias", null, bias);
  }

  *#embedded(u: Float64Array): Generator<Part> {
    const { weights, last } = this.shared.model;
    const { tokenVectors, placeVectors } = this.subject.pass.stack;
    const norm = weights.findAffine(`${last.embedding}.norm`);
    const token = rowOf(tokenVectors, this.place);
    const position = placeVectors === null ? null : rowOf(placeVectors, this.place);
    const own = this.#through(norm, token.map((value, at) => value + (position ? position[at]! : 0)), u);
    yield this.#here("token embedding", dot(token, own));
    if (position !== null) yield this.#here("position embedding", dot(position, own));
    if (norm?.bias) yield plain("embedding norm bias", null, dot(u, norm.bias.data));
  }

  *#part(made: PartPass, own: Weights, u: Float64Array, layer: number): Generator<Part> {
    const atOutput = this.shared.model.settings.norm_order === "output";
    const written = rowOf(made.written, this.place);
    const direction = atOutput ? this.#through(own.norm, written, u) : u;
    const beta = atOutput ? own.norm?.bias : null;
    if (made.attention === null) yield plain("feed-forward", layer, dot(written, direction));
    else yield* this.#heads(made, direction, layer);
    const name = { attention: "attention", cross: "cross", feedforward: "feed-forward" }[made.name];
    if (beta) yield plain(`${name} norm bias`, layer, dot(u, beta.data));
  }

  /** Contributions of the heads, split by source token, and the contribution of the bias of the output projection. */
  *#heads(made: PartPass, u: Float64Array, layer: number): Generator<Part> {
    const { of, v, weights } = made.attention!;
    const { weight, bias } = of.output;
    const K = this.shared.model.settings.head_width;
    for (const [place, head] of of.heads.entries()) {
      const read = new Float64Array(K); // u projected to the values of this head
      u.forEach((value, d) => {
        for (let at = 0; at < K; at += 1) read[at]! += value * weight.data[d * weight.columns + place * K + at]!;
      });
      const shares = rowOf(weights[place]!, this.place);
      const sources = shares.map((share, key) => {
        const start = key * v.columns + of.asks[place]! * K;
        return share * dot(read, v.data.subarray(start, start + K));
      });
      const value = sources.reduce((sum, each) => sum + each, 0);
      yield { kind: made.name === "cross" ? "cross head" : "head", layer, head, value, sources };
    }
    if (bias !== null) yield plain(made.name === "cross" ? "cross bias" : "attention bias", layer, dot(u, bias.data));
  }

  #here(kind: string, value: number): Part {
    const sources = new Float64Array(this.subject.ids.length);
    sources[this.place] = value;
    return { kind, layer: null, head: null, value, sources };
  }

  #through(own: Affine | null, x: Float64Array, w: Float64Array): Float64Array {
    const { norm, norm_eps } = this.shared.model.settings;
    return through(own, norm, norm_eps, x, w);
  }
}

function plain(kind: string, layer: number | null, value: number): Part {
  return { kind, layer, head: null, value, sources: null };
}
