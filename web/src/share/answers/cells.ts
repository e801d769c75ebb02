/** Pool a window of an attention map into cells, as numbers or bytes; see `app/server/views/attention/cells.py`. */
import { type Scale, scaled } from "../../lib/colours";

/** Byte that represents a masked cell. */
export const MASKED_BYTE = 255;
/** Byte that represents the weight 1. */
export const FULL_BYTE = 254;
export type Span = [start: number, stop: number] | null;

export interface Cells {
  values: Float32Array;
  shape: [rows: number, columns: number];
  rowSums: number[];
  largest: number;
}

/** Smallest side of the blocks for which a length fits into `maxCells` cells. */
export function blockFor(length: number, maxCells: number): number {
  return Math.ceil(length / maxCells);
}

/** The largest weight of each block; NaN if the whole block is masked. `row(i)`: the weights of query i, NaN where masked. */
export function cellsOf(row: (query: number) => Float64Array, queries: [number, number], keys: [number, number], block: number): Cells {
  const shape: [number, number] = [Math.ceil((queries[1] - queries[0]) / block), Math.ceil((keys[1] - keys[0]) / block)];
  const values = new Float32Array(shape[0] * shape[1]).fill(Number.NaN);
  const rowSums = new Array<number>(shape[0]).fill(0);
  let largest = 0;
  for (let query = queries[0]; query < queries[1]; query += 1) {
    const weights = row(query);
    const down = Math.floor((query - queries[0]) / block);
    const height = Math.min(block, queries[1] - queries[0] - down * block);
    for (const weight of weights) if (!Number.isNaN(weight)) rowSums[down]! += weight / height;
    for (let key = keys[0]; key < keys[1]; key += 1) {
      const weight = weights[key]!;
      const at = down * shape[1] + Math.floor((key - keys[0]) / block);
      if (!(weight <= values[at]!) && !Number.isNaN(weight)) values[at] = weight;
      if (weight > largest) largest = weight;
    }
  }
  return { values, shape, rowSums, largest };
}

/** One byte for each cell, on the scale. */
export function asBytes(values: Float32Array, scale: Scale): Uint8Array {
  return Uint8Array.from(values, (value) => (Number.isNaN(value) ? MASKED_BYTE : Math.round(scaled(Math.min(1, value), scale) * FULL_BYTE)));
}

/** Entropy -Σ w ln w, in nats. */
export function entropy(weights: ArrayLike<number>): number {
  let sum = 0;
  for (let at = 0; at < weights.length; at += 1) {
    const weight = weights[at]!;
    if (weight > 0) sum -= weight * Math.log(weight);
  }
  return sum;
}
