/** The weights in the file: 8-bit integers with a scale for each row, or floats. */
import type { Affine, Table } from "./tensors";

/** Location of one tensor in the bytes; see `app/share/quantize.py`. */
export interface PackedTensor {
  name: string;
  shape: number[];
  kind: "int8" | "float16" | "float32";
  /** Offset of the first byte. For int8, one float32 scale for each row precedes the integers. */
  offset: number;
}

export class Weights {
  readonly #tables = new Map<string, Table>();

  constructor(packed: readonly PackedTensor[], bytes: ArrayBuffer) {
    for (const each of packed) this.#tables.set(each.name, unpack(each, bytes));
  }

  get names(): string[] {
    return [...this.#tables.keys()];
  }

  find(name: string): Table | null {
    return this.#tables.get(name) ?? null;
  }

  get(name: string): Table {
    const table = this.#tables.get(name);
    if (table === undefined) throw new Error(`the file has no tensor ${name}`);
    return table;
  }

  /** A matrix or gain, with its bias if there is one. */
  affine(name: string): Affine {
    return { weight: this.get(`${name}.weight`), bias: this.find(`${name}.bias`) };
  }

  /** A matrix or gain with its bias; null if the model does not have it. */
  findAffine(name: string): Affine | null {
    return this.#tables.has(`${name}.weight`) ? this.affine(name) : null;
  }
}

/** Decode base64. */
export function fromBase64(text: string): ArrayBuffer {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = letters.charCodeAt(at);
  return bytes.buffer;
}

function unpack({ shape, kind, offset }: PackedTensor, bytes: ArrayBuffer): Table {
  const columns = shape.at(-1) ?? 1;
  const count = shape.reduce((product, each) => product * each, 1);
  const rows = shape.length > 1 ? shape[0]! : 1;
  if (kind === "float32") return { rows, columns, data: new Float32Array(bytes, offset, count) };
  const data = new Float32Array(count);
  if (kind === "float16") {
    const halves = new Uint16Array(bytes, offset, count);
    for (let at = 0; at < count; at += 1) data[at] = fromFloat16(halves[at]!);
    return { rows, columns, data };
  }
  const scales = new Float32Array(bytes, offset, rows);
  const numbers = new Int8Array(bytes, offset + 4 * rows, count);
  for (let at = 0; at < count; at += 1) data[at] = numbers[at]! * scales[Math.floor(at / columns)]!;
  return { rows, columns, data };
}

/** Decode an IEEE 754 binary16 number. */
function fromFloat16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}
