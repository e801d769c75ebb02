/** Cached keys and values of earlier tokens, so that each token is computed once. */
import type { Matrix } from "./tensors";

/** Cached keys and values of one attention layer. */
export class LayerCache {
  keys: Matrix | null = null;
  values: Matrix | null = null;

  get length(): number {
    return this.keys?.rows ?? 0;
  }

  copy(): LayerCache {
    const copy = new LayerCache();
    copy.keys = copied(this.keys);
    copy.values = copied(this.values);
    return copy;
  }

  /** Append keys and values; return all of them. */
  append(keys: Matrix, values: Matrix): [Matrix, Matrix] {
    this.keys = appended(this.keys, keys);
    this.values = appended(this.values, values);
    return [this.keys, this.values];
  }
}

/** A copy of a matrix. */
function copied(x: Matrix | null): Matrix | null {
  return x && { ...x, data: x.data.slice() };
}

/** Cache of one stack: `self` and `cross` of each layer. */
export class Cache {
  readonly #layers = new Map<string, LayerCache>();
  /** Number of tokens read. */
  length = 0;

  grow(tokens: number): void {
    this.length += tokens;
  }

  /** A copy for a row with another continuation. */
  copy(): Cache {
    const copy = new Cache();
    for (const [site, layer] of this.#layers) copy.#layers.set(site, layer.copy());
    copy.length = this.length;
    return copy;
  }

  of(site: string): LayerCache {
    let layer = this.#layers.get(site);
    if (layer === undefined) {
      layer = new LayerCache();
      this.#layers.set(site, layer);
    }
    return layer;
  }
}

/** The rows of `below` appended to `above`. The buffer doubles when it is full, so that n tokens cost O(n) copied rows. */
function appended(above: Matrix | null, below: Matrix): Matrix {
  if (above === null) return below;
  const needed = above.data.length + below.data.length;
  let buffer = new Float64Array(above.data.buffer);
  if (buffer.length < needed) {
    buffer = new Float64Array(2 * needed);
    buffer.set(above.data);
  }
  buffer.set(below.data, above.data.length);
  return { rows: above.rows + below.rows, columns: below.columns, data: buffer.subarray(0, needed) };
}
