/**
 * Requests of the page to its source: `glass serve`, or the model in a shared file. All numbers come from here.
 *
 * `main.ts` and `share.ts` set the source with `setSource` before the page is drawn.
 */

import { textNotes } from "./text-notes.svelte";

/** An error of glassformer: what happened, and what to do. */
export class GlassError extends Error {
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

export const CONNECTION_LOST = new GlassError("The connection to the server was lost.", "Try again.");

/** A run in the server's list. */
export interface Run {
  name: string;
  /** Version of the checkpoint shown, such as "step-000850.0123456789abcdef"; null: none yet. */
  version: string | null;
  step: number | null;
  training: boolean;
  /** The served run from whose weights training began (`glass train --from`); null: none. */
  parent: string | null;
  /** Error that prevents opening the run; null: none. */
  error: { what: string; remedy: string } | null;
  /** Why an older checkpoint is served: the best one could not be loaded; null: it could. A shared file has none. */
  warning?: { what: string; remedy: string } | null;
  task: "lm" | "masked" | "classify" | "translate" | "summarize" | "chat";
  family: "decoder" | "encoder" | "encoder-decoder";
  layers: number;
  encoder_layers: number | null;
  heads: number;
  width: number;
  context: number;
  parameters: number;
  /** Numbers of the heads of each attention layer, without pruned heads. */
  attentions: Record<string, number[]>;
  vocabulary: number;
  source_vocabulary: number | null;
  tokenizer: string;
  labels: string[];
  /** The first text on the page. */
  prompt: string;
  /** The setting `sample.tokens`. */
  sample_tokens?: number;
}

/** A binary answer: the bytes of the numbers, and a header that describes them. */
export interface BinaryAnswer<Header> {
  header: Header;
  bytes: ArrayBuffer;
}

/** Source of the answers to the page's requests. */
export interface Source {
  listRuns(): Promise<Run[]>;
  /** The answer of a view, as JSON. */
  ask(run: string, view: string, question: object, signal?: AbortSignal): Promise<unknown>;
  /** The answer of a view: four bytes with the length of a JSON header (little-endian), the header, and the numbers. */
  askBytes(run: string, view: string, question: object, signal?: AbortSignal): Promise<ArrayBuffer>;
  /** The events that answer a POST request. */
  events(path: string, body: object, signal: AbortSignal): AsyncGenerator<unknown>;
}

let source: Source | null = null;

/** Set the source of all answers. */
export function setSource(chosen: Source): void {
  source = chosen;
}

function currentSource(): Source {
  if (source === null) throw new Error("setSource was not called");
  return source;
}

/** The runs that are served, in the order of the command line. */
export function listRuns(): Promise<Run[]> {
  return currentSource().listRuns();
}

/** The answer of a view, as JSON. */
export async function ask<Answer>(run: string, view: string, question: object, signal?: AbortSignal): Promise<Answer> {
  const answer = await currentSource().ask(run, view, question, signal);
  textNotes.save(run, question, answer);
  return answer as Answer;
}

/** The binary answer of a view: its header and its numbers. */
export async function askBytes<Header>(
  run: string,
  view: string,
  question: object,
  signal?: AbortSignal,
): Promise<BinaryAnswer<Header>> {
  const whole = await currentSource().askBytes(run, view, question, signal);
  const length = new DataView(whole).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length))) as Header;
  textNotes.save(run, question, header);
  return { header, bytes: whole.slice(4 + length) };
}

/** The events of a streamed answer, one at a time. The stream may break, so check that the last event arrived. */
export function events<Event>(path: string, body: object, signal: AbortSignal): AsyncGenerator<Event> {
  return currentSource().events(path, body, signal) as AsyncGenerator<Event>;
}
