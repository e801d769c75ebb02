/** An open shared file: its header, its model and tokenizers, and helpers for the views. */
import { GlassError, type Run } from "../lib/api";
import { CachedDecoder } from "./cached-decoder";
import { type Pass, Transformer } from "./model";
import type { Settings } from "./settings";
import { largest } from "./tensors";
import { Tokenizer, type TokenizerJson } from "./tokenizer";
import { fromBase64, type PackedTensor, Weights } from "./weights";

/** Sampling settings; the fields are the library's. */
export interface SampleConfig {
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

/** Effect of rounding the weights, measured by the library when it wrote the file. */
export interface Rounding {
  places: number;
  loss: number;
  loss_shared: number;
  largest_difference: number;
  same_choice: number;
  row: { ids: number[]; source: number[] | null; logits: [id: number, logit: number][] };
}

/** Header of the file; see `app/share/package.py`. */
export interface Header {
  format: number;
  bits: 8 | 16 | 32;
  run: Run;
  examples: string[];
  settings: Settings;
  sample: SampleConfig;
  frame: { before: number[]; after: number[] };
  tokenizer: TokenizerJson;
  source_tokenizer: TokenizerJson | null;
  tensors: PackedTensor[];
  check?: Rounding;
}

/** Input of the model for a text. */
export interface Subject {
  ids: number[];
  /** Source ids of an encoder-decoder, whose `ids` are the target; else null. */
  source: number[] | null;
  /** The given or generated target; null if the run has no targets. */
  target: string | null;
  pass: Pass;
}

export const MASK = "[MASK]";
const WITH_SPACE = ["words", "bpe", "unigram"]; // schemes whose tokens include the space before them

export class SharedFile {
  readonly model: Transformer;
  /** Tokenizer of the generated text or, without a separate source tokenizer, of all text. */
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

  get isEncoderDecoder(): boolean {
    return this.header.settings.family === "encoder-decoder";
  }

  /** Whether the generated text continues the text; an answer is encoded separately from its question. */
  get continuesText(): boolean {
    return !this.isEncoderDecoder && this.run.task !== "chat";
  }

  /** The tokenizer of a stack's input. */
  tokenizerOf(stack: "enc" | "dec"): Tokenizer {
    return stack === "enc" ? this.sourceTokenizer : this.tokenizer;
  }

  /** Token ids of a text with the special tokens around it, not truncated; a masked model gets the mask token for each [MASK]. */
  encode(text: string): number[] {
    const { task } = this.run;
    if (task !== "masked" || !text.includes(MASK)) {
      const ids = this.withSpecialTokens(this.sourceTokenizer.encode(text));
      return ids.length > 0 ? ids : [this.tokenizer.roles.start];
    }
    const [first = "", ...rest] = textsAroundMasks(text, this.tokenizer.kind);
    const mask = this.tokenizer.roles.mask!;
    return this.withSpecialTokens([first, ...rest].flatMap((part, at) => [...(at > 0 ? [mask] : []), ...this.tokenizer.encode(part)]));
  }

  /** Token ids of a text with the special tokens around it; the text is truncated to fit in the context. */
  encodeTruncated(text: string): number[] {
    const { before, after } = this.header.frame;
    const maxTokens = Math.max(0, this.model.settings.context - before.length - after.length);
    return this.withSpecialTokens(this.sourceTokenizer.encode(text).slice(0, maxTokens)).slice(0, this.model.settings.context);
  }

  withSpecialTokens(ids: number[]): number[] {
    return [...this.header.frame.before, ...ids, ...this.header.frame.after];
  }

  /** The forward pass of a text and its target, which must fit in the context; cached for the other views. */
  subject(text: string, target: string | null): Subject {
    const key = JSON.stringify([text, target]);
    let subject = this.#subjects.get(key);
    if (subject === undefined) {
      subject = this.#computeSubject(text, target);
      this.#subjects.set(key, subject);
      for (const old of [...this.#subjects.keys()].slice(0, -4)) this.#subjects.delete(old);
    }
    return subject;
  }

  /** Greedy output for a source, without the end token. */
  greedy(source: number[]): number[] {
    const { model, tokenizer } = this;
    const decoder = CachedDecoder.forSource(model, source);
    const row = [...tokenizer.roles.target_start];
    const startLength = row.length;
    const most = Math.min(this.header.sample.tokens, model.settings.context - startLength + 1);
    for (let count = 0; count < most; count += 1) {
      const token = largest(decoder.nextLogits(row), 1)[0]!;
      if (token === tokenizer.roles.end) break;
      row.push(token);
    }
    return row.slice(startLength);
  }

  #computeSubject(text: string, target: string | null): Subject {
    const { context } = this.model.settings;
    if (text === "") throw new GlassError("The text is empty: there is nothing to show.", "Enter a text.");
    const encoded = this.encode(text);
    refuseLong("text", encoded.length, context);
    if (!this.isEncoderDecoder) return { ids: encoded, source: null, target: null, pass: this.model.pass(encoded) };
    const start = this.tokenizer.roles.target_start;
    const written = target === null ? this.greedy(encoded).slice(0, context - start.length) : this.tokenizer.encode(target);
    const ids = [...start, ...written];
    refuseLong("target", ids.length, context);
    const targetText = target ?? this.tokenizer.decode(written);
    return { ids, source: encoded, target: targetText, pass: this.model.pass(ids, encoded) };
  }
}

/** The parts of a text around its masks, without a space that belongs to the missing token. */
export function textsAroundMasks(text: string, kind: string): string[] {
  const parts = text.split(MASK);
  const last = parts.length - 1;
  return parts.map((part, at) => (at < last && WITH_SPACE.includes(kind) && part.endsWith(" ") ? part.slice(0, -1) : part));
}

function refuseLong(what: string, tokens: number, context: number): void {
  if (tokens <= context) return;
  throw new GlassError(`The ${what} has ${tokens} tokens, but the model reads at most ${context}.`, `Give a shorter ${what}.`);
}
