/**
 * The forward pass of all three families in plain TypeScript: the computation of the library, in float64.
 *
 * A pass records the residual stream after each block, the input and output of each part, and the queries, keys, values
 * and weights of every attention layer, for the views.
 */
import { activate } from "./activations";
import { attend, type AttentionParameters, attentionParameters, type AttentionPass, type MaskAndBias, NO_MASK } from "./attention";
import { Cache } from "./cache";
import { addSinusoids, alibiBias, relativeBias } from "./positions";
import type { Settings } from "./settings";
import { type Affine, linear, type Matrix, normed, plus, rowOf, zeros } from "./tensors";
import type { Weights } from "./weights";

export type PartName = "attention" | "cross" | "feedforward";

/** Activations of one of the two or three parts of a block. */
export interface PartPass {
  name: PartName;
  /** Output of the part, (T, D), before an output norm; and the vector added to the residual stream. */
  output: Matrix;
  added: Matrix;
  attention: AttentionPass | null;
}

/** Activations of one pass through a stack. */
export interface StackPass {
  name: "enc" | "dec";
  ids: readonly number[];
  /** Terms of the embedding before its norm, (T, D): token vectors and, if added, position vectors. */
  tokenVectors: Matrix;
  positionVectors: Matrix | null;
  /** The residual stream after the embedding and after each block, (T, D) each. */
  streams: Matrix[];
  blocks: PartPass[][];
  /** Output of the final norm. */
  out: Matrix;
}

/** Activations of one pass through the model; `encoder` only for an encoder-decoder. */
export interface Pass {
  encoder: StackPass | null;
  stack: StackPass;
  /** (T, V), or (1, C) for a classifier. */
  logits: Matrix;
}

/** The parameters of one part of a block. */
export interface PartParameters {
  name: PartName;
  norm: Affine | null;
  attention: AttentionParameters | null;
  up: Affine | null;
  gate: Affine | null;
  down: Affine | null;
}

/** The parameters of a stack, and the mask and position bias of its attention layers. */
export interface Stack {
  name: "enc" | "dec";
  embedding: string;
  blocks: PartParameters[][];
  norm: Affine | null;
  maskAndBias: MaskAndBias;
}

export class Transformer {
  readonly #stacks: Stack[];

  constructor(readonly settings: Settings, readonly weights: Weights) {
    if (settings.family === "encoder-decoder") {
      const source = settings.shared_embedding ? "embedding" : "source_embedding";
      this.#stacks = [this.#stack("enc", "encoder", source), this.#stack("dec", "decoder", "embedding")];
    } else {
      this.#stacks = [this.#stack(settings.family === "decoder" ? "dec" : "enc", "stack", "embedding")];
    }
  }

  /** Encoder and decoder of an encoder-decoder; else the only stack. */
  get stacks(): readonly Stack[] {
    return this.#stacks;
  }

  /** The stack before the output head. */
  get last(): Stack {
    return this.#stacks.at(-1)!;
  }

  /** Run the model on one row. `source`: source ids of an encoder-decoder, whose `ids` are the target. */
  pass(ids: readonly number[], source: readonly number[] | null = null): Pass {
    const encoder = source === null ? null : this.encode(source);
    const stack = this.run(this.last, ids, encoder?.out ?? null, null);
    return { encoder, stack, logits: this.head(stack.out) };
  }

  /** Run the encoder on a source. */
  encode(source: readonly number[]): StackPass {
    return this.run(this.#stacks[0]!, source, null, null);
  }

  /** The logits (V) after the last of these ids, which follow the cached tokens. */
  next(ids: readonly number[], memory: Matrix | null, cache: Cache): Float64Array {
    const { out } = this.run(this.last, ids, memory, cache);
    const last = { rows: 1, columns: out.columns, data: rowOf(out, out.rows - 1) };
    return this.head(last).data;
  }

  /** Run a stack on token ids. */
  run(stack: Stack, ids: readonly number[], memory: Matrix | null, cache: Cache | null): StackPass {
    const first = cache?.length ?? 0;
    const { tokenVectors, positionVectors, x } = this.#embed(stack.embedding, ids, first);
    const pass: StackPass = { name: stack.name, ids, tokenVectors, positionVectors, streams: [x], blocks: [], out: x };
    for (const parts of stack.blocks) {
      let stream = pass.streams.at(-1)!;
      const made: PartPass[] = [];
      for (const part of parts) {
        const [next, own] = this.#add(stream, part, memory, stack.maskAndBias, cache);
        stream = next;
        made.push(own);
      }
      pass.streams.push(stream);
      pass.blocks.push(made);
    }
    cache?.grow(ids.length);
    pass.out = this.#norm(pass.streams.at(-1)!, stack.norm);
    return pass;
  }

  /** Logits x Wᵀ + b, with a separate or tied matrix W; for a classifier, of the pooled vector. */
  head(x: Matrix): Matrix {
    const { settings, weights } = this;
    if (settings.classifier) return linear(pooled(x, settings.pooling), weights.affine("head"));
    let vectors = x;
    if (settings.head_transform) {
      const transformed = activate(linear(x, weights.affine("head.transform")), settings.activation);
      vectors = this.#norm(transformed, weights.findAffine("head.norm"));
    }
    const weight = weights.find("head.weight") ?? weights.get("embedding.tokens.weight");
    return linear(vectors, { weight, bias: weights.find("head.bias") });
  }

  /** x + part(norm(x)), norm(x + part(x)) or x + norm(part(x)), and the activations. */
  #add(x: Matrix, part: PartParameters, memory: Matrix | null, maskAndBias: MaskAndBias, cache: Cache | null): [Matrix, PartPass] {
    const order = this.settings.norm_order;
    const read = order === "pre" ? this.#norm(x, part.norm) : x;
    let output: Matrix = read;
    let attention: AttentionPass | null = null;
    if (part.attention === null) output = this.#feedforward(read, part);
    else {
      const cross = part.name === "cross";
      [output, attention] = attend(
        read, cross ? memory : null, part.attention, this.settings, cross ? NO_MASK : maskAndBias,
        cache?.of(part.attention.site) ?? null,
      );
    }
    const added = order === "output" ? this.#norm(output, part.norm) : output;
    const sum = plus(x, added);
    return [order === "post" ? this.#norm(sum, part.norm) : sum, { name: part.name, output, added, attention }];
  }

  /** W_down f(W_up x), or gated W_down (f(W_gate x) · W_up x). */
  #feedforward(x: Matrix, part: PartParameters): Matrix {
    const up = linear(x, part.up!);
    const hidden = activate(part.gate === null ? up : linear(x, part.gate), this.settings.activation);
    if (part.gate !== null) {
      for (let at = 0; at < up.data.length; at += 1) hidden.data[at] = hidden.data[at]! * up.data[at]!;
    }
    return linear(hidden, part.down!);
  }

  /** scale · E[token] + P[position], and a norm if the model has one. */
  #embed(name: string, ids: readonly number[], first: number): { tokenVectors: Matrix; positionVectors: Matrix | null; x: Matrix } {
    const { settings, weights } = this;
    const table = weights.get(`${name}.tokens.weight`);
    const scale = settings.embedding_scale ? Math.sqrt(settings.width) : 1;
    const tokenVectors = zeros(ids.length, settings.width);
    ids.forEach((id, t) => {
      const to = rowOf(tokenVectors, t);
      for (let at = 0; at < to.length; at += 1) to[at] = table.data[id * table.columns + at]! * scale;
    });
    let positionVectors: Matrix | null = null;
    if (settings.positions === "learned" || settings.positions === "sinusoidal") {
      positionVectors = zeros(ids.length, settings.width);
      if (settings.positions === "sinusoidal") addSinusoids(positionVectors, first);
      else {
        const positionTable = weights.get(`${name}.positions.table.weight`);
        positionVectors.data.set(positionTable.data.subarray(first * positionTable.columns, (first + ids.length) * positionTable.columns));
      }
    }
    const sum = positionVectors === null ? tokenVectors : plus(tokenVectors, positionVectors);
    return { tokenVectors, positionVectors, x: this.#norm(sum, weights.findAffine(`${name}.norm`)) };
  }

  #norm(x: Matrix, own: Affine | null): Matrix {
    return normed(x, this.settings.norm, own, this.settings.norm_eps);
  }

  #stack(name: "enc" | "dec", prefix: string, embedding: string): Stack {
    const { settings, weights } = this;
    const blocks: PartParameters[][] = [];
    while (settings.attentions[`${name}.${blocks.length}.self`] !== undefined) {
      blocks.push(this.#block(`${prefix}.blocks.${blocks.length}`, `${name}.${blocks.length}`));
    }
    const causal = name === "dec";
    const table = weights.find(`${prefix}.score_positions.table.weight`);
    let bias = settings.positions === "alibi" ? alibiBias(settings.heads) : null;
    if (table !== null) bias = relativeBias(table, settings.relative_max_distance, causal);
    const maskAndBias: MaskAndBias = { causal, window: settings.window, bias };
    return { name, embedding, blocks, norm: weights.findAffine(`${prefix}.norm`), maskAndBias };
  }

  #block(prefix: string, site: string): PartParameters[] {
    const { settings, weights } = this;
    const part = (name: PartName, layerSite: string | null): PartParameters => ({
      name,
      norm: weights.findAffine(`${prefix}.${name}_norm`),
      attention: layerSite === null ? null : attentionParameters(weights, `${prefix}.${name}`, layerSite, settings),
      up: weights.findAffine(`${prefix}.${name}.up`),
      gate: weights.findAffine(`${prefix}.${name}.gate`),
      down: weights.findAffine(`${prefix}.${name}.down`),
    });
    const cross = settings.attentions[`${site}.cross`] === undefined ? [] : [part("cross", `${site}.cross`)];
    return [part("attention", `${site}.self`), ...cross, part("feedforward", null)];
  }
}

/** The pooled vector of the row: the mean of all vectors, or the first. */
function pooled(x: Matrix, pooling: Settings["pooling"]): Matrix {
  const mean = zeros(1, x.columns);
  const rows = pooling === "first" ? 1 : x.rows;
  for (let at = 0; at < rows * x.columns; at += 1) mean.data[at % x.columns]! += x.data[at]! / rows;
  return mean;
}
