/** From logits to a token: the filters of `generation/sampling.py` in order, and sampling with the browser's random numbers. */
import type { SampleConfig } from "../shared-file";
import { largest, softmax } from "../tensors";

export type SamplingFilters = Pick<SampleConfig, "temperature" | "top_k" | "top_p" | "min_p" | "repetition_penalty">;

/** The distribution after a filter and all filters before it; `filter` null: the model's own distribution. */
export interface Stage {
  filter: keyof SamplingFilters | null;
  setting: number | null;
  probabilities: Float64Array;
}

const ROUNDING = 1e-9; // a cumulative probability this close to top_p counts as reaching it
const FILTERS: readonly [keyof SamplingFilters, inactive: number | null][] = [
  ["repetition_penalty", 1], ["temperature", 1], ["top_k", null], ["top_p", null], ["min_p", null],
];

/** The model's own distribution, then one for each active filter. */
export function stages(logits: Float64Array, filters: SamplingFilters, previous: readonly number[]): Stage[] {
  const found: Stage[] = [{ filter: null, setting: null, probabilities: softmax(logits.slice()) }];
  const active: SamplingFilters = { temperature: 1, top_k: null, top_p: null, min_p: null, repetition_penalty: 1 };
  for (const [filter, inactive] of FILTERS) {
    if (active.temperature === 0) break; // one token has probability 1, so there is nothing to filter
    if (filters[filter] === inactive) continue;
    (active[filter] as number | null) = filters[filter];
    found.push({ filter, setting: filters[filter], probabilities: samplingDistribution(logits, active, previous) });
  }
  return found;
}

/** The distribution to sample from; at temperature 0, the likeliest token has probability 1. */
export function samplingDistribution(logits: Float64Array, filters: SamplingFilters, previous: readonly number[]): Float64Array {
  const { temperature, top_k, top_p, min_p, repetition_penalty } = filters;
  const scores = logits.slice();
  if (repetition_penalty !== 1) {
    for (const id of new Set(previous)) scores[id] = logits[id]! > 0 ? logits[id]! / repetition_penalty : logits[id]! * repetition_penalty;
  }
  if (temperature === 0) {
    const probabilities = new Float64Array(scores.length);
    probabilities[argmax(scores)] = 1;
    return probabilities;
  }
  const highest = scores[argmax(scores)]!;
  scores.forEach((score, id) => (scores[id] = (score - highest) / temperature));
  if (top_k !== null && top_k < scores.length) keepOnly(scores, largest(scores, top_k), -Infinity);
  const probabilities = softmax(scores);
  if (top_p !== null && top_p < 1) {
    let cumulative = 0;
    keepOnly(probabilities, largest(probabilities, probabilities.length).filter((id, rank) => {
      const before = cumulative;
      cumulative += probabilities[id]!;
      return rank === 0 || before < top_p - ROUNDING;
    }), 0);
    normalize(probabilities);
  }
  if (min_p !== null) {
    const least = min_p * probabilities[argmax(probabilities)]!;
    probabilities.forEach((probability, id) => { if (probability < least) probabilities[id] = 0; });
    normalize(probabilities);
  }
  return probabilities;
}

/** Index of the largest number; the first of equal ones. */
export function argmax(x: Float64Array): number {
  let best = 0;
  for (let at = 1; at < x.length; at += 1) if (x[at]! > x[best]!) best = at;
  return best;
}

function keepOnly(x: Float64Array, ids: readonly number[], otherwise: number): void {
  const keptIds = new Set(ids);
  x.forEach((_, id) => { if (!keptIds.has(id)) x[id] = otherwise; });
}

/** Divide the numbers by their sum. */
function normalize(x: Float64Array): void {
  const sum = x.reduce((total, probability) => total + probability, 0);
  x.forEach((probability, id) => (x[id] = probability / sum));
}

/** A token in the exponential race: it arrives at `number` / probability, and the first to arrive is sampled. */
export interface RaceEntry {
  id: number;
  probability: number;
  number: number;
  arrival: number;
}

/** The exponential race of the library, with other random numbers: the same seed can give another text than the library. */
export function race(probabilities: Float64Array, random: () => number): RaceEntry[] {
  const entries: RaceEntry[] = [];
  probabilities.forEach((probability, id) => {
    const number = -Math.log1p(-random());
    if (probability > 0) entries.push({ id, probability, number, arrival: number / probability });
  });
  return entries.sort((a, b) => a.arrival - b.arrival || a.id - b.id);
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
