/**
 * Logits of the next token of a growing row. Each token is computed once; beyond the context, the window moves in hops,
 * as in the library.
 */
import { Cache } from "./cache";
import type { Transformer } from "./model";
import type { Matrix } from "./tensors";

/** Index of the first token in the window, which moves by half a context. See `generation/context_window.py`. */
export function windowStart(length: number, context: number): number {
  const hop = Math.max(1, Math.floor(context / 2));
  return Math.ceil(Math.max(0, length - context) / hop) * hop;
}

export class CachedDecoder {
  readonly #memory: Matrix | null;
  #cache = new Cache();
  #start = 0;

  /** `memory`: output of the encoder, for an encoder-decoder; else null. */
  constructor(readonly model: Transformer, memory: Matrix | null) {
    this.#memory = memory;
  }

  /** Decoder of the targets of a source; null: of rows without a source. */
  static forSource(model: Transformer, source: readonly number[] | null): CachedDecoder {
    return new CachedDecoder(model, source && model.encode(source).out);
  }

  /** A copy for a row with another continuation. */
  copy(): CachedDecoder {
    const copy = new CachedDecoder(this.model, this.#memory);
    copy.#cache = this.#cache.copy();
    copy.#start = this.#start;
    return copy;
  }

  /** The logits (V) of the token after the row; `row` contains all tokens from the first. */
  nextLogits(row: readonly number[]): Float64Array {
    const start = this.#memory === null ? windowStart(row.length, this.model.settings.context) : 0;
    if (start !== this.#start) this.#cache = new Cache();
    this.#start = start;
    return this.model.next(row.slice(start + this.#cache.length), this.#memory, this.#cache);
  }
}
