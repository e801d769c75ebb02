/** Keys and values of the tokens before, so that a text that grows is read once. */
import type { Matrix } from "./tensors";

/** Of one attention. */
export class Rows {
  keys: Matrix | null = null;
  values: Matrix | null = null;

  get length(): number {
    return this.keys?.rows ?? 0;
  }

  copy(): Rows {
    const copy = new Rows();
    [copy.keys, copy.values] = [copied(this.keys), copied(this.values)];
    return copy;
  }

  /** All keys and values, with these behind the others. */
  append(keys: Matrix, values: Matrix): [Matrix, Matrix] {
    this.keys = joined(this.keys, keys);
    this.values = joined(this.values, values);
    return [this.keys, this.values];
  }
}

/** The same numbers in memory of their own. */
function copied(x: Matrix | null): Matrix | null {
  return x && { ...x, data: x.data.slice() };
}

/** Of one stack: `self` and `cross` of each layer. */
export class Cache {
  readonly #rows = new Map<string, Rows>();
  /** Tokens that were read. */
  length = 0;

  grow(tokens: number): void {
    this.length += tokens;
  }

  /** For a row that goes on otherwise. */
  copy(): Cache {
    const copy = new Cache();
    for (const [site, rows] of this.#rows) copy.#rows.set(site, rows.copy());
    copy.length = this.length;
    return copy;
  }

  of(site: string): Rows {
    let rows = this.#rows.get(site);
    if (rows === undefined) this.#rows.set(site, (rows = new Rows()));
    return rows;
  }
}

/** Rows under rows. The memory behind a matrix doubles when it is full, so that a text of n tokens is copied O(n) times. */
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
