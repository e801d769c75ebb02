/**
 * Matrices and the operations of a transformer.
 *
 * Weights are float32, as in the library; all computations are in float64. The letters of shapes in comments are the
 * library's: T and S tokens, D width, H heads, G key heads, K head width, F hidden width, V vocabulary size.
 */

/** A computed matrix, row by row. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly data: Float64Array;
}

/** A weight matrix, row by row; a vector is one row. */
export interface Table {
  readonly rows: number;
  readonly columns: number;
  readonly data: Float32Array;
}

/** Gain and bias of a norm, or matrix and bias of a linear map; `bias` null: no bias. */
export interface Affine {
  readonly weight: Table;
  readonly bias: Table | null;
}

export function zeros(rows: number, columns: number): Matrix {
  return { rows, columns, data: new Float64Array(rows * columns) };
}

export function rowOf(x: Matrix, row: number): Float64Array {
  return x.data.subarray(row * x.columns, (row + 1) * x.columns);
}

export function plus(a: Matrix, b: Matrix): Matrix {
  const sum = zeros(a.rows, a.columns);
  for (let at = 0; at < sum.data.length; at += 1) sum.data[at] = a.data[at]! + b.data[at]!;
  return sum;
}

/** y = x Wᵀ + b: (T, inputs), (outputs, inputs) -> (T, outputs). Four rows share each reading of the weights. */
export function linear(x: Matrix, { weight, bias }: Affine): Matrix {
  const inputs = weight.columns;
  const outputs = weight.rows;
  const y = zeros(x.rows, outputs);
  const from = x.data;
  const w = weight.data;
  const to = y.data;
  let row = 0;
  for (; row + 4 <= x.rows; row += 4) {
    const r0 = row * inputs;
    const r1 = (row + 1) * inputs;
    const r2 = (row + 2) * inputs;
    const r3 = (row + 3) * inputs;
    for (let out = 0; out < outputs; out += 1) {
      const start = out * inputs;
      let s0 = 0;
      let s1 = 0;
      let s2 = 0;
      let s3 = 0;
      for (let at = 0; at < inputs; at += 1) {
        const each = w[start + at]!;
        s0 += each * from[r0 + at]!;
        s1 += each * from[r1 + at]!;
        s2 += each * from[r2 + at]!;
        s3 += each * from[r3 + at]!;
      }
      to[row * outputs + out] = s0;
      to[(row + 1) * outputs + out] = s1;
      to[(row + 2) * outputs + out] = s2;
      to[(row + 3) * outputs + out] = s3;
    }
  }
  for (; row < x.rows; row += 1) {
    for (let out = 0; out < outputs; out += 1) {
      let sum = 0;
      for (let at = 0; at < inputs; at += 1) sum += w[out * inputs + at]! * from[row * inputs + at]!;
      to[row * outputs + out] = sum;
    }
  }
  if (bias !== null) {
    for (let at = 0; at < to.length; at += 1) to[at] = to[at]! + bias.data[at % outputs]!;
  }
  return y;
}

export type NormKind = "layernorm" | "rmsnorm" | "none";

/**
 * Normalize chunks of each row that are as wide as the gain: whole rows, or heads.
 *
 * layernorm: (x - mean) / √(variance + ε) · g + b (Ba et al. 2016); rmsnorm: x / √(mean of x² + ε) · g (Zhang and
 * Sennrich 2019).
 */
export function normed(x: Matrix, kind: NormKind, own: Affine | null, epsilon: number): Matrix {
  if (kind === "none" || own === null) return x;
  const y = zeros(x.rows, x.columns);
  const gain = own.weight.data;
  const offset = own.bias?.data ?? null;
  const width = own.weight.data.length;
  for (let start = 0; start < x.data.length; start += width) {
    const part = x.data.subarray(start, start + width);
    const { mean, scale } = normStatistics(part, kind, epsilon);
    for (let at = 0; at < width; at += 1) {
      y.data[start + at] = ((part[at]! - mean) / scale) * gain[at]! + (offset === null ? 0 : offset[at]!);
    }
  }
  return y;
}

/** The mean that a norm subtracts from a vector, and the scale by which it divides. */
export function normStatistics(x: Float64Array, kind: NormKind, epsilon: number): { mean: number; scale: number } {
  let mean = 0;
  if (kind === "layernorm") {
    for (const value of x) mean += value;
    mean /= x.length;
  }
  let squares = 0;
  for (const value of x) squares += (value - mean) * (value - mean);
  return { mean, scale: Math.sqrt(squares / x.length + epsilon) };
}

/** Softmax eˣ / Σ eˣ in place; -∞ gives exactly 0. */
export function softmax(x: Float64Array): Float64Array {
  let highest = -Infinity;
  for (const value of x) if (value > highest) highest = value;
  let sum = 0;
  for (let at = 0; at < x.length; at += 1) {
    x[at] = Math.exp(x[at]! - highest);
    sum += x[at]!;
  }
  for (let at = 0; at < x.length; at += 1) x[at] = x[at]! / sum;
  return x;
}

/** ln Σ eˣ. */
export function logSumExp(x: Float64Array): number {
  let highest = -Infinity;
  for (const value of x) if (value > highest) highest = value;
  let sum = 0;
  for (const value of x) sum += Math.exp(value - highest);
  return highest + Math.log(sum);
}

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let at = 0; at < a.length; at += 1) sum += a[at]! * b[at]!;
  return sum;
}

/** Indices of the n largest numbers, largest first; ties go to the lower index, as in the library. */
export function largest(x: ArrayLike<number>, n: number): number[] {
  const order = Array.from({ length: x.length }, (_, at) => at);
  return order.sort((a, b) => x[b]! - x[a]! || a - b).slice(0, n);
}
