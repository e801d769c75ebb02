/** Cells sent as one byte each (`form: "uint8"` of the attention views), as fractions from 0 to 1; NaN: masked. */
export function decodeCells(bytes: Uint8Array, hidden: number, full: number): Float32Array {
  return Float32Array.from(bytes, (byte) => (byte === hidden ? Number.NaN : byte / full));
}
