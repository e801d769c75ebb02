/** Beam search for one source or prompt, as explained in `generation/beam.py`. */
import { CachedDecoder } from "./cached-decoder";
import type { SharedFile } from "./shared-file";
import { largest, logSumExp } from "./tensors";

export interface Hypothesis {
  /** The generated tokens, including the end token if it was generated. */
  tokens: number[];
  logProbability: number;
  score: number;
  ended: "end" | "length";
}

/** A running hypothesis extended by one token. */
export interface Candidate {
  parent: number;
  token: number;
  logProbability: number;
}

/** One step: the hypotheses before it, the candidates, and the hypotheses that are continued. */
export interface SearchStep {
  before: number[][];
  candidates: Candidate[];
  after: number[][];
}

/** The settings of the search; the fields are the library's. */
export interface BeamSettings {
  beams: number;
  tokens: number;
  length_penalty: number;
}

interface Running {
  decoder: CachedDecoder;
  tokens: number[];
  sum: number;
}

/** Length penalty, which divides the log-probability (Wu et al. 2016, equation 14). */
export function penalty(tokens: number, alpha: number): number {
  return ((5 + tokens) / 6) ** alpha;
}

/** The best hypotheses, best first. */
export function search(shared: SharedFile, text: string, settings: BeamSettings, wanted: number, onStep?: (step: SearchStep) => void): Hypothesis[] {
  const { model, tokenizer } = shared;
  const { context } = model.settings;
  const source = shared.isEncoderDecoder ? shared.encodeTruncated(text) : null;
  const start = source === null ? shared.encode(text) : tokenizer.roles.target_start;
  const most = source === null ? settings.tokens : Math.min(settings.tokens, context - start.length + 1);
  const finished: Hypothesis[] = [];
  const addFinished = (tokens: number[], logProbability: number, ended: Hypothesis["ended"]): void => {
    const score = logProbability / penalty(tokens.length, settings.length_penalty);
    const worse = finished.findIndex((each) => each.score < score);
    finished.splice(worse < 0 ? finished.length : worse, 0, { tokens, logProbability, score, ended });
    finished.splice(wanted);
  };
  let running: Running[] = [{ decoder: CachedDecoder.forSource(model, source), tokens: [], sum: 0 }];
  for (let count = 1; count <= most && running.length > 0; count += 1) {
    const candidates = likeliest(running, start, 2 * settings.beams);
    for (const candidate of candidates.slice(0, settings.beams)) {
      if (candidate.token === tokenizer.roles.end) addFinished([...running[candidate.parent]!.tokens, candidate.token], candidate.logProbability, "end");
    }
    const before = running;
    const continued = inLibraryOrder(candidates.filter((candidate) => candidate.token !== tokenizer.roles.end).slice(0, settings.beams), before.length);
    running = continued.map(({ parent, token, logProbability }) => {
      const { decoder, tokens } = before[parent]!;
      return { decoder: decoder.copy(), tokens: [...tokens, token], sum: logProbability };
    });
    onStep?.({ before: before.map((each) => each.tokens), candidates, after: running.map((each) => each.tokens) });
    const best = Math.max(...running.map((each) => each.sum)) / penalty(count, settings.length_penalty);
    if (running.length === 0 || (finished.length === wanted && best <= finished.at(-1)!.score)) return finished;
  }
  for (const { tokens, sum } of running) addFinished(tokens, sum, "length");
  return finished;
}

/** The n likeliest candidates, likeliest first; ties go to the lower row, then to the lower id. */
function likeliest(running: readonly Running[], start: readonly number[], n: number): Candidate[] {
  const all = running.flatMap(({ decoder, tokens, sum }, parent) => {
    const logits = decoder.nextLogits([...start, ...tokens]);
    const whole = logSumExp(logits);
    return largest(logits, n).map((token) => ({ parent, token, logProbability: sum + logits[token]! - whole }));
  });
  return all.sort((a, b) => b.logProbability - a.logProbability).slice(0, n); // the sort is stable
}

/** The candidates in the library's order, on which ties depend: the first candidate of each parent is in the parent's row. */
function inLibraryOrder(candidates: readonly Candidate[], rows: number): Candidate[] {
  if (candidates.length < rows) return [...candidates];
  const placed = new Map<number, Candidate>();
  const others: Candidate[] = [];
  for (const candidate of candidates) {
    if (placed.has(candidate.parent)) others.push(candidate);
    else placed.set(candidate.parent, candidate);
  }
  return candidates.map((_, row) => placed.get(row) ?? others.shift()!);
}
