/** From logits to a token: the filters of `generation/sampling.py` in order, and sampling with the browser's random numbers. */
import type { Sampling } from "../shared";
import { largest, softmax } from "../tensors";

export type Drawing = Pick<Sampling, "temperature" | "top_k" | "top_p" | "min_p" | "repetition_penalty">;

/** The distribution after a filter and all filters before it; `filter` null: the model's own distribution. */
export interface Stage {
  filter: keyof Drawing | null;
  setting: number | null;
  shares: Float64Array;
}

const ROUNDING = 1e-9; // a cumulative probability this close to top_p counts as reaching it
const FILTERS: readonly [keyof Drawing, idle: number | null][] = [
  ["repetition_penalty", 1], ["temperature", 1], ["top_k", null], ["top_p", null], ["min_p", null],
];

/** The model's own distribution, then one for each active setting. */
export function stages(logits: Float64Array, drawing: Drawing, previous: readonly number[]): Stage[] {
  const found: Stage[] = [{ filter: null, setting: null, shares: softmax(logits.slice()) }];
  const now: Drawing = { temperature: 1, top_k: null, top_p: null, min_p: null, repetition_penalty: 1 };
  for (const [filter, idle] of FILTERS) {
    if (now.temperature === 0) break; // one token has probability 1, so there is nothing to filter
    if (drawing[filter] === idle) continue;
    (now[filter] as number | null) = drawing[filter];
    found.push({ filter, setting: drawing[filter], shares: probabilities(logits, now, previous) });
  }
  return found;
}

/** The distribution to sample from; at temperature 0, the likeliest token has probability 1. */
export function probabilities(logits: Float64Array, drawing: Drawing, previous: readonly number[]): Float64Array {
  const { temperature, top_k, top_p, min_p, repetition_penalty } = drawing;
  const scores = logits.slice();
  if (repetition_penalty !== 1) {
    for (const id of new Set(previous)) scores[id] = logits[id]! > 0 ? logits[id]! / repetition_penalty : logits[id]! * repetition_penalty;
  }
  if (temperature === 0) {
    const shares = new Float64Array(scores.length);
    shares[argmax(scores)] = 1;
    return shares;
  }
  const highest = scores[argmax(scores)]!;
  scores.forEach((score, id) => (scores[id] = (score - highest) / temperature));
  if (top_k !== null && top_k < scores.length) keep(scores, largest(scores, top_k), -Infinity);
  const shares = softmax(scores);
  if (top_p !== null && top_p < 1) {
    let held = 0;
    keep(shares, largest(shares, shares.length).filter((id, rank) => {
      const before = held;
      held += shares[id]!;
      return rank === 0 || before < top_p - ROUNDING;
    }), 0);
    normalize(shares);
  }
  if (min_p !== null) {
    const least = min_p * shares[argmax(shares)]!;
    shares.forEach((share, id) => { if (share < least) shares[id] = 0; });
    normalize(shares);
  }
  return shares;
}

/** Index of the largest number; the first of equal ones. */
export function argmax(x: Float64Array): number {
  let best = 0;
  for (let at = 1; at < x.length; at += 1) if (x[at]! > x[best]!) best = at;
  return best;
}

function keep(x: Float64Array, ids: readonly number[], otherwise: number): void {
  const kept = new Set(ids);
  x.forEach((_, id) => { if (!kept.has(id)) x[id] = otherwise; });
}

/** Divide the numbers by their sum. */
function normalize(x: Float64Array): void {
  const sum = x.reduce((total, share) => total + share, 0);
  x.forEach((share, id) => (x[id] = share / sum));
}

/** A token in the exponential race: it arrives at `number` / probability, and the first to arrive is sampled. */
export interface Runner {
  id: number;
  probability: number;
  number: number;
  arrival: number;
}

/** The exponential race of the library, with other random numbers: the same seed can give another text than the library. */
export function race(shares: Float64Array, random: () => number): Runner[] {
  const runners: Runner[] = [];
  shares.forEach((probability, id) => {
    const number = -Math.log1p(-random());
    if (probability > 0) runners.push({ id, probability, number, arrival: number / probability });
  });
  return runners.sort((a, b) => a.arrival - b.arrival || a.id - b.id);
}

/** Uniform random numbers in [0, 1), reproducible by seed: a mixed Weyl sequence (SplitMix, Steele et al. 2014). */
export function randomNumbers(seed: number): () => number {
  let state = BigInt(Math.floor(seed));
  const mask = (1n << 64n) - 1n;
  return () => {
    state = (state + 0x9e3779b97f4a7c15n) & mask;
    let mixed = state;
    mixed = ((mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
    mixed = ((mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn) & mask;
    return Number((mixed ^ (mixed >> 31n)) >> 11n) / 2 ** 53;
  };
}
