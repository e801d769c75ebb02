/** Position information: sinusoidal vectors, rotary angles, and biases of the scores. */
import type { Matrix, Table } from "./tensors";

/** sin(p / 10000^(2i/D)) in channel 2i and cos of it in 2i + 1 (Vaswani et al. 2017, section 3.5). */
export function addSinusoids(x: Matrix, first: number): void {
  const D = x.columns;
  for (let t = 0; t < x.rows; t += 1) {
    for (let channel = 0; channel < D; channel += 2) {
      const angle = (first + t) * 10_000 ** (-channel / D);
      x.data[t * D + channel] = x.data[t * D + channel]! + Math.sin(angle);
      x.data[t * D + channel + 1] = x.data[t * D + channel + 1]! + Math.cos(angle);
    }
  }
}

/** Rotate channels i and i + K/2 of each head by the angle p base^(-2i/K), in place (Su et al. 2021, section 3.2.2). */
export function rotate(x: Matrix, K: number, base: number, first: number): void {
  const half = K / 2;
  for (let t = 0; t < x.rows; t += 1) {
    for (let i = 0; i < half; i += 1) {
      const angle = (first + t) * base ** ((-2 * i) / K);
      const cos = Math.cos(angle);
      const sin = Math.sin(angle);
      for (let at = t * x.columns + i; at < (t + 1) * x.columns; at += K) {
        const a = x.data[at]!;
        const b = x.data[at + half]!;
        x.data[at] = a * cos - b * sin;
        x.data[at + half] = b * cos + a * sin;
      }
    }
  }
}

/**
 * Slopes 2^(-8i/n) for i = 1 … n, if the number of heads n is a power of two (Press et al. 2022).
 *
 * For another n: the slopes of the next lower power of two, and some of those of the next higher power.
 */
export function alibiSlopes(heads: number): number[] {
  const power = 2 ** Math.floor(Math.log2(heads));
  const slopes = Array.from({ length: power }, (_, i) => 2 ** ((-8 * (i + 1)) / power));
  const between = Array.from({ length: power }, (_, i) => 2 ** ((-4 * (2 * i + 1)) / power));
  return [...slopes, ...between].slice(0, heads);
}

/**
 * Bucket of a distance to an earlier key: exact for small distances, logarithmic for large ones (Raffel et al. 2020).
 *
 * The logarithm is rounded to float32 after each step, as in the library: the bucket of a distance on an edge depends on it.
 */
export function bucketOf(back: number, all: number, maxDistance: number, causal: boolean): number {
  let buckets = all;
  let offset = 0;
  let distance = back;
  if (!causal) {
    buckets = Math.floor(buckets / 2);
    offset = back < 0 ? buckets : 0;
    distance = Math.abs(back);
  }
  distance = Math.max(distance, 0);
  const exact = Math.floor(buckets / 2);
  if (distance < exact) return offset + distance;
  const round = Math.fround;
  const far = round(round(Math.log(round(distance / exact))) / round(Math.log(maxDistance / exact)));
  return offset + Math.min(Math.floor(round(exact + round(far * round(buckets - exact)))), buckets - 1);
}

/** Bias of the score of a key `back` positions before its query, in one head. */
export type ScoreBias = (head: number, back: number) => number;

export function alibiBias(heads: number): ScoreBias {
  const slopes = alibiSlopes(heads);
  return (head, back) => -slopes[head]! * Math.abs(back);
}

/** Learned biases, one for each bucket and head: `table` (buckets, H). */
export function relativeBias(table: Table, maxDistance: number, causal: boolean): ScoreBias {
  const known = new Map<number, number>();
  return (head, back) => {
    let bucket = known.get(back);
    if (bucket === undefined) {
      bucket = bucketOf(back, table.rows, maxDistance, causal);
      known.set(back, bucket);
    }
    return table.data[bucket * table.columns + head]!;
  };
}
