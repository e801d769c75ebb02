/** Beam search for one source or prompt, as explained in `generation/beam.py`. */
import { Reader } from "./reader";
import type { Shared } from "./shared";
import { largest, logSumExp } from "./tensors";

export interface Hypothesis {
  /** The generated tokens, including the end token if it was generated. */
  tokens: number[];
  logProbability: number;
  score: number;
  ended: "end" | "length";
}

/** A running hypothesis extended by one token. */
export interface Child {
  parent: number;
  token: number;
  logProbability: number;
}

/** One step: the hypotheses before it, the candidates, and the hypotheses kept. */
export interface Look {
  before: number[][];
  children: Child[];
  after: number[][];
}

export interface Rule {
  beams: number;
  tokens: number;
  length_penalty: number;
}

interface Running {
  reader: Reader;
  tokens: number[];
  sum: number;
}

/** Length penalty, which divides the log-probability (Wu et al. 2016, equation 14). */
export function penalty(tokens: number, alpha: number): number {
  return ((5 + tokens) / 6) ** alpha;
}

/** The best hypotheses, best first. */
export function search(shared: Shared, text: string, rule: Rule, wanted: number, watch?: (look: Look) => void): Hypothesis[] {
  const { model, tokenizer } = shared;
  const { context } = model.settings;
  const source = shared.writesForSource ? shared.cut(text) : null;
  const start = source === null ? shared.read(text) : tokenizer.roles.target_start;
  const most = source === null ? rule.tokens : Math.min(rule.tokens, context - start.length + 1);
  const pool: Hypothesis[] = [];
  const finish = (tokens: number[], logProbability: number, ended: Hypothesis["ended"]): void => {
    const score = logProbability / penalty(tokens.length, rule.length_penalty);
    const worse = pool.findIndex((each) => each.score < score);
    pool.splice(worse < 0 ? pool.length : worse, 0, { tokens, logProbability, score, ended });
    pool.splice(wanted);
  };
  let running: Running[] = [{ reader: Reader.after(model, source), tokens: [], sum: 0 }];
  for (let count = 1; count <= most && running.length > 0; count += 1) {
    const children = likeliest(running, start, 2 * rule.beams);
    for (const child of children.slice(0, rule.beams)) {
      if (child.token === tokenizer.roles.end) finish([...running[child.parent]!.tokens, child.token], child.logProbability, "end");
    }
    const before = running;
    const kept = inPlace(children.filter((child) => child.token !== tokenizer.roles.end).slice(0, rule.beams), before.length);
    running = kept.map(({ parent, token, logProbability }) => {
      const { reader, tokens } = before[parent]!;
      return { reader: reader.copy(), tokens: [...tokens, token], sum: logProbability };
    });
    watch?.({ before: before.map((each) => each.tokens), children, after: running.map((each) => each.tokens) });
    const best = Math.max(...running.map((each) => each.sum)) / penalty(count, rule.length_penalty);
    if (running.length === 0 || (pool.length === wanted && best <= pool.at(-1)!.score)) return pool;
  }
  for (const { tokens, sum } of running) finish(tokens, sum, "length");
  return pool;
}

/** The n likeliest candidates, likeliest first; ties go to the lower row, then to the lower id. */
function likeliest(running: readonly Running[], start: readonly number[], n: number): Child[] {
  const all = running.flatMap(({ reader, tokens, sum }, parent) => {
    const logits = reader.read([...start, ...tokens]);
    const whole = logSumExp(logits);
    return largest(logits, n).map((token) => ({ parent, token, logProbability: sum + logits[token]! - whole }));
  });
  return all.sort((a, b) => b.logProbability - a.logProbability).slice(0, n); // the sort is stable
}

/** The children in the library's order, on which ties depend: the first child of each parent is in the parent's row. */
function inPlace(children: readonly Child[], rows: number): Child[] {
  if (children.length < rows) return [...children];
  const placed = new Map<number, Child>();
  const others: Child[] = [];
  for (const child of children) {
    if (placed.has(child.parent)) others.push(child);
    else placed.set(child.parent, child);
  }
  return children.map((_, row) => placed.get(row) ?? others.shift()!);
}
