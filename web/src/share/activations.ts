/** Elementwise activations of the feed-forward layer, by their names in the settings. */
import { type Matrix, zeros } from "./tensors";

export type Activation = "relu" | "gelu" | "gelu_tanh" | "relu2" | "swiglu" | "geglu";

const STEP = 1 / 64;
const FAR = 6.5; // above this, erf(x) is 1 in float64
const TANH_SCALE = Math.sqrt(2 / Math.PI);

/** erf at 0, STEP, 2 STEP, …, by the series 2/√π e^(-x²) Σ 2ⁿ x²ⁿ⁺¹ / (1·3·…·(2n+1)), all of whose terms are positive. */
const ERF = Float64Array.from({ length: FAR / STEP + 2 }, (_, index) => {
  const x = index * STEP;
  let term = x;
  let sum = 0;
  for (let n = 1; term > sum * 1e-18; n += 1) {
    sum += term;
    term *= (2 * x * x) / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
});

/** The error function, to about 1e-16: a Taylor series around the nearest entry of the table. */
export function erf(x: number): number {
  const size = Math.abs(x);
  if (size >= FAR) return Math.sign(x);
  const index = Math.round(size / STEP);
  const at = index * STEP;
  const d = size - at;
  const slope = (2 / Math.sqrt(Math.PI)) * Math.exp(-at * at);
  // The derivatives of e^(-x²) are e^(-x²) times Hermite polynomials.
  const series =
    1 - d * (at - (d / 3) * (2 * at * at - 1 - (d / 2) * (2 * at ** 3 - 3 * at - (d / 5) * (4 * at ** 4 - 12 * at * at + 3))));
  return Math.sign(x) * (ERF[index]! + slope * d * series);
}

const FUNCTIONS: Record<Activation, (x: number) => number> = {
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  geglu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(TANH_SCALE * (x + 0.044715 * x ** 3))),
  swiglu: (x) => 0.5 * x * (1 + Math.tanh(0.5 * x)),
};

/** The activation function f; for a gated activation, the function of the gate. */
export function activate(x: Matrix, name: Activation): Matrix {
  const f = FUNCTIONS[name];
  const y = zeros(x.rows, x.columns);
  for (let at = 0; at < y.data.length; at += 1) y.data[at] = f(x.data[at]!);
  return y;
}
