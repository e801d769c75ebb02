/** A shared file, opened: what it says of itself, the model, and what the views ask of both. */
import { Problem, type Run } from "../lib/api";
import { type Pass, Transformer } from "./model";
import type { Settings } from "./settings";
import { Reader } from "./reader";
import { largest } from "./tensors";
import { Tokenizer, type TokenizerJson } from "./tokenizer";
import { fromBase64, type Stored, Weights } from "./weights";

/** How text is drawn; the fields are the library's. */
export interface Sampling {
  tokens: number;
  beams: number;
  length_penalty: number;
  temperature: number;
  top_k: number | null;
  top_p: number | null;
  min_p: number | null;
  repetition_penalty: number;
  stop: string[];
  seed: number;
}

/** What rounding the weights changed, as the library measured it when it wrote the file. */
export interface Rounding {
  places: number;
  loss: number;
  loss_shared: number;
  largest_difference: number;
  same_choice: number;
  row: { ids: number[]; source: number[] | null; logits: [id: number, logit: number][] };
}

/** See `sharing/package.py`. */
export interface Header {
  format: number;
  bits: 8 | 16 | 32;
  run: Run;
  examples: string[];
  settings: Settings;
  sample: Sampling;
  frame: { before: number[]; after: number[] };
  tokenizer: TokenizerJson;
  source_tokenizer: TokenizerJson | null;
  tensors: Stored[];
  check?: Rounding;
}

/** What the model reads of a text. */
export interface Subject {
  ids: number[];
  /** Of a run that writes for a source; else null, and `ids` is all there is. */
  source: number[] | null;
  /** The target as it was given or written; null where there is none. */
  target: string | null;
  pass: Pass;
}

export const MASK = "[MASK]";
const WITH_SPACE = ["words", "bpe", "unigram"]; // schemes whose tokens carry the space before them

export class Shared {
  readonly model: Transformer;
  /** Of what is written, or of all. */
  readonly tokenizer: Tokenizer;
  readonly sourceTokenizer: Tokenizer;
  readonly #subjects = new Map<string, Subject>();

  constructor(readonly header: Header, data: string) {
    this.model = new Transformer(header.settings, new Weights(header.tensors, fromBase64(data)));
    this.tokenizer = new Tokenizer(header.tokenizer);
    this.sourceTokenizer = header.source_tokenizer === null ? this.tokenizer : new Tokenizer(header.source_tokenizer);
  }

  get run(): Run {
    return this.header.run;
  }

  get writesForSource(): boolean {
    return this.header.settings.family === "encoder-decoder";
  }

  /** Whether what is written continues the text that was read; an answer is encoded apart from its question. */
  get continues(): boolean {
    return !this.writesForSource && this.run.task !== "chat";
  }

  /** The tokenizer of what is read in a stack. */
  tokenizerOf(stack: "enc" | "dec"): Tokenizer {
    return stack === "enc" ? this.sourceTokenizer : this.tokenizer;
  }

  /** What the model reads of a text, uncut: of a filler with the mask token in each hole. */
  read(text: string): number[] {
    const { task } = this.run;
    if (task !== "masked" || !text.includes(MASK)) {
      const ids = this.framed(this.sourceTokenizer.encode(text));
      return ids.length > 0 ? ids : [this.tokenizer.roles.start];
    }
    const [first = "", ...rest] = holes(text, this.tokenizer.kind);
    const mask = this.tokenizer.roles.mask!;
    return this.framed([first, ...rest].flatMap((part, at) => [...(at > 0 ? [mask] : []), ...this.tokenizer.encode(part)]));
  }

  /** What the encoder reads of a text: cut to the context, of which the frame comes first. */
  cut(text: string): number[] {
    const { before, after } = this.header.frame;
    const room = Math.max(0, this.model.settings.context - before.length - after.length);
    return this.framed(this.sourceTokenizer.encode(text).slice(0, room)).slice(0, this.model.settings.context);
  }

  framed(ids: number[]): number[] {
    return [...this.header.frame.before, ...ids, ...this.header.frame.after];
  }

  /** The pass over a text, and a target, that the model reads whole; kept for the views that ask next. */
  subject(text: string, target: string | null): Subject {
    const key = JSON.stringify([text, target]);
    let subject = this.#subjects.get(key);
    if (subject === undefined) {
      subject = this.#made(text, target);
      this.#subjects.set(key, subject);
      for (const old of [...this.#subjects.keys()].slice(0, -4)) this.#subjects.delete(old);
    }
    return subject;
  }

  /** The likeliest tokens that are written for a source, without the end token. */
  greedy(source: number[]): number[] {
    const { model, tokenizer } = this;
    const reader = Reader.after(model, source);
    const row = [...tokenizer.roles.target_start];
    const begun = row.length;
    const most = Math.min(this.header.sample.tokens, model.settings.context - begun + 1);
    for (let count = 0; count < most; count += 1) {
      const token = largest(reader.read(row), 1)[0]!;
      if (token === tokenizer.roles.end) break;
      row.push(token);
    }
    return row.slice(begun);
  }

  #made(text: string, target: string | null): Subject {
    const { context } = this.model.settings;
    if (text === "") throw new Problem("The text is empty: there is nothing to show.", "Write a text.");
    const read = this.read(text);
    refuseLong("text", read.length, context);
    if (!this.writesForSource) return { ids: read, source: null, target: null, pass: this.model.pass(read) };
    const start = this.tokenizer.roles.target_start;
    const written = target === null ? this.greedy(read).slice(0, context - start.length) : this.tokenizer.encode(target);
    const ids = [...start, ...written];
    refuseLong("target", ids.length, context);
    const shown = target ?? this.tokenizer.decode(written);
    return { ids, source: read, target: shown, pass: this.model.pass(ids, read) };
  }
}

/** What stands around the holes of a text; a space that belongs to the missing token is left out. */
export function holes(text: string, kind: string): string[] {
  const parts = text.split(MASK);
  const last = parts.length - 1;
  return parts.map((part, at) => (at < last && WITH_SPACE.includes(kind) && part.endsWith(" ") ? part.slice(0, -1) : part));
}

function refuseLong(what: string, tokens: number, context: number): void {
  if (tokens <= context) return;
  throw new Problem(`The ${what} has ${tokens} tokens, the model reads ${context}.`, `Give a shorter ${what}.`);
}
