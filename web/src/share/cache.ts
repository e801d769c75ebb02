/** Cached keys and values of earlier tokens, so that each token is computed once. */
import type { Matrix } from "./tensors";

/** Cached keys and values of one attention layer. */
export class Rows {
  keys: Matrix | null = null;
  values: Matrix | null = null;

  get length(): number {
    return this.keys?.rows ?? 0;
  }

  copy(): Rows {
    const copy = new Rows();
    copy.keys = copied(this.keys);
    copy.values = copied(this.values);
    return copy;
  }

  /** Append keys and values; return all of them. */
  append(keys: Matrix, values: Matrix): [Matrix, Matrix] {
    this.keys = joined(this.keys, keys);
    this.values = joined(this.values, values);
    return [this.keys, this.values];
  }
}

/** A copy of a matrix. */
function copied(x: Matrix | null): Matrix | null {
  return x && { ...x, data: x.data.slice() };
}

/** Cache of one stack: `self` and `cross` of each layer. */
export class Cache {
  readonly #rows = new Map<string, Rows>();
  /** Number of tokens read. */
  length = 0;

  grow(tokens: number): void {
    this.length += tokens;
  }

  /** A copy for a row with another continuation. */
  copy(): Cache {
    const copy = new Cache();
    for (const [site, rows] of this.#rows) copy.#rows.set(site, rows.copy());
    copy.length = this.length;
    return copy;
  }

  of(site: string): Rows {
    let rows = this.#rows.get(site);
    if (rows === undefined) {
      rows = new Rows();
      this.#rows.set(site, rows);
    }
    return rows;
  }
}

/** The rows of `below` appended to `above`. The buffer doubles when it is full, so that n tokens cost O(n) copied rows. */
function joined(above: Matrix | null, below: Matrix): Matrix {
  if (above === null) return below;
  const needed = above.data.length + below.data.length;
  let room = new Float64Array(above.data.buffer);
  if (room.length < needed) {
    room = new Float64Array(2 * needed);
    room.set(above.data);
  }
  room.set(below.data, above.data.length);
  return { rows: above.rows + below.rows, columns: below.columns, data: room.subarray(0, needed) };
}
