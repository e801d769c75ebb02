/**
 * What the page asks, and whom: `glass serve`, or the model in the page's own file. Every number comes through here.
 *
 * `main.ts` and `share.ts` say once, before anything is drawn, who answers: `answerBy`.
 */

/** What happened, and what to do: the two lines of every error of glassformer. */
export class Problem extends Error {
  readonly what: string;
  readonly remedy: string;
  readonly status: number;

  constructor(what: string, remedy: string, status = 0) {
    super(`${what}\n${remedy}`);
    this.what = what;
    this.remedy = remedy;
    this.status = status;
  }
}

export const BROKEN = new Problem("The connection to the server broke.", "Try again.");

/** A run, as the server lists it. */
export interface Run {
  name: string;
  /** The checkpoint that is shown, such as "step-000850"; null: there is none yet. */
  version: string | null;
  step: number | null;
  training: boolean;
  /** The served run whose weights this one began with (`glass train --from`); null: none. */
  parent: string | null;
  /** Why the run cannot be opened; null if it can. */
  error: { what: string; remedy: string } | null;
  task: "lm" | "masked" | "classify" | "translate" | "summarize" | "chat";
  family: "decoder" | "encoder" | "encoder-decoder";
  layers: number;
  encoder_layers: number | null;
  heads: number;
  width: number;
  context: number;
  parameters: number;
  /** The heads that each attention has: a pruned run has fewer. */
  attentions: Record<string, number[]>;
  vocabulary: number;
  source_vocabulary: number | null;
  tokenizer: string;
  labels: string[];
  /** What the page begins with. */
  prompt: string;
  /** The setting `sample.tokens`. A shared file does not have it. */
  sample_tokens?: number;
}

/** Numbers that came as bytes, with what says how to read them. */
export interface Bytes<Header> {
  header: Header;
  bytes: ArrayBuffer;
}

/** Who answers the page's questions. */
export interface Source {
  listRuns(): Promise<Run[]>;
  /** The answer of a view, as JSON. */
  ask(run: string, view: string, question: object, signal?: AbortSignal): Promise<unknown>;
  /** The answer of a view, as bytes after a JSON header, whose length is the first four bytes (little-endian). */
  askBytes(run: string, view: string, question: object, signal?: AbortSignal): Promise<ArrayBuffer>;
  /** The events that answer a POST request. */
  events(path: string, body: object, signal: AbortSignal): AsyncGenerator<unknown>;
}

let source: Source | null = null;

/** From now on, this one answers. */
export function answerBy(chosen: Source): void {
  source = chosen;
}

function asked(): Source {
  if (source === null) throw new Error("nobody was chosen to answer");
  return source;
}

/** The runs that are served, in the order of the command line. */
export function listRuns(): Promise<Run[]> {
  return asked().listRuns();
}

/** The answer of a view, as JSON. */
export async function ask<Answer>(run: string, view: string, question: object, signal?: AbortSignal): Promise<Answer> {
  return (await asked().ask(run, view, question, signal)) as Answer;
}

/** The answer of a view in numbers, and what says how to read them. */
export async function askBytes<Header>(
  run: string,
  view: string,
  question: object,
  signal?: AbortSignal,
): Promise<Bytes<Header>> {
  const whole = await asked().askBytes(run, view, question, signal);
  const length = new DataView(whole).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length))) as Header;
  return { header, bytes: whole.slice(4 + length) };
}

/** The events of a POST request that is answered with a stream, one at a time. It may end early: look for the last event. */
export function events<Event>(path: string, body: object, signal: AbortSignal): AsyncGenerator<Event> {
  return asked().events(path, body, signal) as AsyncGenerator<Event>;
}
