/**
 * A logit as the sum of the contributions of the model's parts. The library's `inspection/receipt/parts.py` explains the
 * sum and its norms. With the scale σ of the final norm held fixed, norm and head are linear in the residual stream.
 */
import type { PartParameters, PartPass } from "../model";
import type { SharedFile, Subject } from "../shared-file";
import { type Affine, dot, type NormKind, normStatistics, rowOf } from "../tensors";

export interface Part {
  kind: string;
  layer: number | null;
  head: number | null;
  value: number;
  /** Contributions of the tokens to `value`; null if the part reads no tokens. */
  sources: Float64Array | null;
}

/** All parts of a logit, in the order of the model, averaged over the positions that the head reads. */
export function splitLogit(shared: SharedFile, subject: Subject, readPositions: readonly number[], token: number, against: number | null): Part[] {
  const [w, bias] = outputHeadRow(shared, token, against);
  let whole: Part[] | null = null;
  for (const position of readPositions) {
    const split = new PositionSplit(shared, subject, position);
    const parts = [...split.parts(w.map((each) => each / readPositions.length), bias / readPositions.length)];
    whole = whole === null ? parts : whole.map((part, at) => added(part, parts[at]!));
  }
  return whole ?? [];
}

export function nameOfPart({ kind, layer, head }: Part): string {
  const named = kind.replace("cross", "cross-attention");
  return [...(layer === null ? [] : [`layer ${layer}`]), named, ...(head === null ? [] : [String(head)])].join(" ");
}

function added(one: Part, other: Part): Part {
  const sources = one.sources === null ? null : one.sources.map((value, at) => value + other.sources![at]!);
  return { ...one, value: one.value + other.value, sources };
}

/** Row and bias of a token in the output head, minus those of `against`. */
function outputHeadRow({ model }: SharedFile, token: number, against: number | null): [Float64Array, number] {
  const table = model.weights.find("head.weight") ?? model.weights.get("embedding.tokens.weight");
  const biases = model.weights.find("head.bias")?.data;
  const [row, other] = [token, against].map((id) => (id === null ? null : table.data.subarray(id * table.columns, (id + 1) * table.columns)));
  const w = Float64Array.from(row!, (value, at) => value - (other ? other[at]! : 0));
  return [w, (biases?.[token] ?? 0) - (against === null ? 0 : (biases?.[against] ?? 0))];
}

/** The vector u with u · x = w · (norm(x) without its bias), the scale of the norm held fixed at its value for x. */
function throughNorm(own: Affine | null, kind: NormKind, epsilon: number, x: Float64Array, w: Float64Array): Float64Array {
  if (own === null || kind === "none") return w;
  const { scale } = normStatistics(x, kind, epsilon);
  const g = w.map((value, at) => value * own.weight.data[at]!);
  const mean = kind === "layernorm" ? g.reduce((sum, value) => sum + value, 0) / g.length : 0;
  return g.map((value) => (value - mean) / scale);
}

/** The parts at one position. */
class PositionSplit {
  constructor(readonly shared: SharedFile, readonly subject: Subject, readonly position: number) {}

  *parts(w: Float64Array, bias: number): Generator<Part> {
    const { model } = this.shared;
    const pass = this.subject.pass.stack;
    const u = this.#throughNorm(model.last.norm, rowOf(pass.streams.at(-1)!, this.position), w);
    yield* this.#embeddingParts(u);
    for (const [layer, made] of pass.blocks.entries()) {
      for (const [at, part] of made.entries()) yield* this.#part(part, model.last.blocks[layer]![at]!, u, layer);
    }
    const beta = model.last.norm?.bias;
    if (beta) yield withoutSources("final norm bias", null, dot(w, beta.data));
    if (model.weights.find("head.bias")) yield withoutSources("head bias", null, bias);
  }

  *#embeddingParts(u: Float64Array): Generator<Part> {
    const { weights, last } = this.shared.model;
    const { tokenVectors, positionVectors } = this.subject.pass.stack;
    const norm = weights.findAffine(`${last.embedding}.norm`);
    const token = rowOf(tokenVectors, this.position);
    const positionVector = positionVectors === null ? null : rowOf(positionVectors, this.position);
    const own = this.#throughNorm(norm, token.map((value, at) => value + (positionVector ? positionVector[at]! : 0)), u);
    yield this.#ofOwnToken("token embedding", dot(token, own));
    if (positionVector !== null) yield this.#ofOwnToken("position embedding", dot(positionVector, own));
    if (norm?.bias) yield withoutSources("embedding norm bias", null, dot(u, norm.bias.data));
  }

  *#part(made: PartPass, own: PartParameters, u: Float64Array, layer: number): Generator<Part> {
    const atOutput = this.shared.model.settings.norm_order === "output";
    const output = rowOf(made.output, this.position);
    const direction = atOutput ? this.#throughNorm(own.norm, output, u) : u;
    const beta = atOutput ? own.norm?.bias : null;
    if (made.attention === null) yield withoutSources("feed-forward", layer, dot(output, direction));
    else yield* this.#heads(made, direction, layer);
    const name = { attention: "attention", cross: "cross", feedforward: "feed-forward" }[made.name];
    if (beta) yield withoutSources(`${name} norm bias`, layer, dot(u, beta.data));
  }

  /** Contributions of the heads, split by source token, and the contribution of the bias of the output projection. */
  *#heads(made: PartPass, u: Float64Array, layer: number): Generator<Part> {
    const { parameters, v, weights } = made.attention!;
    const { weight, bias } = parameters.output;
    const K = this.shared.model.settings.head_width;
    for (const [index, head] of parameters.heads.entries()) {
      const direction = new Float64Array(K); // u projected to the values of this head
      u.forEach((value, d) => {
        for (let at = 0; at < K; at += 1) direction[at]! += value * weight.data[d * weight.columns + index * K + at]!;
      });
      const row = rowOf(weights[index]!, this.position);
      const sources = row.map((attentionWeight, key) => {
        const start = key * v.columns + parameters.keyHeadIndices[index]! * K;
        return attentionWeight * dot(direction, v.data.subarray(start, start + K));
      });
      const value = sources.reduce((sum, each) => sum + each, 0);
      yield { kind: made.name === "cross" ? "cross head" : "head", layer, head, value, sources };
    }
    if (bias !== null) yield withoutSources(made.name === "cross" ? "cross bias" : "attention bias", layer, dot(u, bias.data));
  }

  #ofOwnToken(kind: string, value: number): Part {
    const sources = new Float64Array(this.subject.ids.length);
    sources[this.position] = value;
    return { kind, layer: null, head: null, value, sources };
  }

  #throughNorm(own: Affine | null, x: Float64Array, w: Float64Array): Float64Array {
    const { norm, norm_eps } = this.shared.model.settings;
    return throughNorm(own, norm, norm_eps, x, w);
  }
}

function withoutSources(kind: string, layer: number | null, value: number): Part {
  return { kind, layer, head: null, value, sources: null };
}
