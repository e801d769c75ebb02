/** Cells that came as one byte each: see `form: "uint8"` of the attention views. */

/** Shares of the scale from 0 to 1, NaN where masked. */
export function unpacked(bytes: Uint8Array, hidden: number, full: number): Float32Array {
  return Float32Array.from(bytes, (byte) => (byte === hidden ? Number.NaN : byte / full));
}
