/** Reads a row that grows by one token at a time, each token once; past the context in hops, as the library does. */
import { Cache } from "./cache";
import type { Transformer } from "./model";
import type { Matrix } from "./tensors";

/** The first token seen of a row: it moves by half a context at a time. See `generation/context_window.py`. */
export function windowStart(length: number, context: number): number {
  const hop = Math.max(1, Math.floor(context / 2));
  return Math.ceil(Math.max(0, length - context) / hop) * hop;
}

export class Reader {
  readonly #memory: Matrix | null;
  #cache = new Cache();
  #start = 0;

  /** `memory`: what the encoder made of the source of an encoder-decoder, whose targets are read; else null. */
  constructor(readonly model: Transformer, memory: Matrix | null) {
    this.#memory = memory;
  }

  /** Of a row that follows a source; null: that follows none. */
  static after(model: Transformer, source: readonly number[] | null): Reader {
    return new Reader(model, source && model.encode(source).out);
  }

  /** Another one that has read the same, for a row that goes on otherwise. */
  copy(): Reader {
    const copy = new Reader(this.model, this.#memory);
    [copy.#cache, copy.#start] = [this.#cache.copy(), this.#start];
    return copy;
  }

  /** The logits (V) of the token after the row, which is whole: every token from the first on. */
  read(row: readonly number[]): Float64Array {
    const start = this.#memory === null ? windowStart(row.length, this.model.settings.context) : 0;
    if (start !== this.#start) this.#cache = new Cache();
    this.#start = start;
    return this.model.next(row.slice(start + this.#cache.length), this.#memory, this.#cache);
  }
}
