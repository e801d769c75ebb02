/** Self-attention and cross-attention: multi-head, grouped-query or multi-query. Vaswani et al. 2017, section 3.2. */
import type { LayerCache } from "./cache";
import { rotate, type ScoreBias } from "./positions";
import { keyHeads, type Settings } from "./settings";
import { type Affine, linear, type Matrix, normed, softmax, zeros } from "./tensors";
import type { Weights } from "./weights";

/** The parameters of one attention layer. */
export interface AttentionParameters {
  site: string;
  /** Numbers of the query heads, and for each query head the index of its key head. */
  heads: readonly number[];
  keyHeadIndices: readonly number[];
  query: Affine;
  key: Affine;
  value: Affine;
  output: Affine;
  queryNorm: Affine | null;
  keyNorm: Affine | null;
}

/** Activations of one attention layer in one pass. */
export interface AttentionPass {
  parameters: AttentionParameters;
  /** Queries (T, H K) and keys (S, G K) after normalization and rotation, and values (S, G K). */
  q: Matrix;
  k: Matrix;
  v: Matrix;
  /** Attention weights of each head, (T, S). */
  weights: Matrix[];
  /** Position of the first query among the keys: after the cached tokens. */
  first: number;
}

/** Mask and position bias of a stack, the same for all its layers. */
export interface MaskAndBias {
  causal: boolean;
  window: number | null;
  bias: ScoreBias | null;
}

/** Mask of cross-attention: no key is masked. */
export const NO_MASK: MaskAndBias = { causal: false, window: null, bias: null };

export function attentionParameters(weights: Weights, name: string, site: string, settings: Settings): AttentionParameters {
  const heads = settings.attentions[site] ?? [];
  return {
    site,
    heads,
    keyHeadIndices: keyHeads(settings, heads),
    query: weights.affine(`${name}.query`),
    key: weights.affine(`${name}.key`),
    value: weights.affine(`${name}.value`),
    output: weights.affine(`${name}.output`),
    queryNorm: weights.findAffine(`${name}.query_norm`),
    keyNorm: weights.findAffine(`${name}.key_norm`),
  };
}

/**
 * Queries (T, H K) or keys (S, G K): projected, normalized if there is a norm, and rotated if the positions are rotary.
 *
 * `from`: position of the first token; null: no rotation.
 */
function project(x: Matrix, own: Affine, norm: Affine | null, settings: Settings, from: number | null): Matrix {
  const made = normed(linear(x, own), "rmsnorm", norm, settings.qk_eps);
  if (from !== null && settings.positions === "rotary") rotate(made, settings.head_width, settings.rotary_base, from);
  return made;
}

/** Range of the keys that a query may attend to: the first, and the one after the last. */
export function allowedKeys(maskAndBias: MaskAndBias, query: number, keys: number): [from: number, to: number] {
  const from = maskAndBias.window === null ? 0 : Math.max(0, query - maskAndBias.window + 1);
  if (maskAndBias.causal) return [from, query + 1];
  return [from, maskAndBias.window === null ? keys : Math.min(keys, query + maskAndBias.window)];
}

/** The score of a query and a key: q · k / √K plus the position bias. */
export function scoreOf(pass: AttentionPass, head: number, row: number, key: number, K: number, bias: ScoreBias | null): number {
  const keyHead = pass.parameters.keyHeadIndices[head]!;
  const fromQ = row * pass.q.columns + head * K;
  const fromK = key * pass.k.columns + keyHead * K;
  let sum = 0;
  for (let at = 0; at < K; at += 1) sum += pass.q.data[fromQ + at]! * pass.k.data[fromK + at]!;
  return sum / Math.sqrt(K) + (bias === null ? 0 : bias(pass.parameters.heads[head]!, pass.first + row - key));
}

/**
 * Run one attention layer: x (T, D) -> output (T, D) and the activations.
 *
 * `memory` null: self-attention after the cached tokens. Otherwise cross-attention, whose keys are computed once per cache.
 */
export function attend(
  x: Matrix, memory: Matrix | null, own: AttentionParameters, settings: Settings, maskAndBias: MaskAndBias, cache: LayerCache | null,
): [Matrix, AttentionPass] {
  const K = settings.head_width;
  const first = memory === null && cache !== null ? cache.length : 0;
  const q = project(x, own.query, own.queryNorm, settings, memory === null ? first : null);
  let k = cache?.keys ?? null;
  let v = cache?.values ?? null;
  if (memory === null || k === null || v === null) {
    const source = memory ?? x;
    k = project(source, own.key, own.keyNorm, settings, memory === null ? first : null);
    v = linear(source, own.value);
    if (cache !== null) [k, v] = cache.append(k, v);
  }
  const pass: AttentionPass = { parameters: own, q, k, v, weights: [], first };
  const mixed = zeros(x.rows, own.heads.length * K);
  for (let head = 0; head < own.heads.length; head += 1) {
    const weights = zeros(x.rows, k.rows);
    for (let row = 0; row < x.rows; row += 1) mix(pass, head, row, K, maskAndBias, weights, mixed);
    pass.weights.push(weights);
  }
  return [linear(mixed, own.output), pass];
}

/** The weights of one query in one head, and the weighted sum of the values. Masked keys have a weight of exactly 0. */
function mix(pass: AttentionPass, head: number, row: number, K: number, maskAndBias: MaskAndBias, weights: Matrix, mixed: Matrix): void {
  const [from, to] = allowedKeys(maskAndBias, pass.first + row, pass.k.rows);
  const own = weights.data.subarray(row * weights.columns + from, row * weights.columns + to);
  for (let key = from; key < to; key += 1) own[key - from] = scoreOf(pass, head, row, key, K, maskAndBias.bias);
  softmax(own);
  const target = mixed.data.subarray(row * mixed.columns + head * K, row * mixed.columns + (head + 1) * K);
  for (let key = from; key < to; key += 1) {
    const weight = own[key - from]!;
    const start = key * pass.v.columns + pass.parameters.keyHeadIndices[head]! * K;
    for (let at = 0; at < K; at += 1) target[at] = target[at]! + weight * pass.v.data[start + at]!;
  }
}
