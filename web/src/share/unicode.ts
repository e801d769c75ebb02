/** Bytes, letters and classes of characters, as the library's tokenizers have them. */

/** The printable letter that stands for each byte in byte-level vocabularies (GPT-2's table). */
export const BYTE_LETTERS: readonly string[] = (() => {
  const itself = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(itself(byte) ? byte : next++));
})();

const encoder = new TextEncoder();

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** The text of bytes; U+FFFD for what is no UTF-8. */
export function textOf(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** The bytes of several, one behind the other. */
export function together(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Bytes as something that can be read: part of a character as `\xe0`, a newline as `\n`. */
export function printable(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const length = characterAt(bytes, at);
    text += length === 0 ? escaped(bytes[at]!) : textOf(bytes.subarray(at, at + length));
    at += Math.max(1, length);
  }
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, (control) => SHORT[control] ?? escaped(control.charCodeAt(0)));
}

const SHORT: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escaped(code: number): string {
  return `\\x${code.toString(16).padStart(2, "0")}`;
}

/** How many bytes the character takes that begins here; 0 if none does. */
function characterAt(bytes: Uint8Array, at: number): number {
  const first = bytes[at]!;
  const length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length < 2) return length;
  return textOf(bytes.subarray(at, at + length)).includes("\ufffd") && !isReplacement(bytes, at) ? 0 : length;
}

function isReplacement(bytes: Uint8Array, at: number): boolean {
  return bytes[at] === 0xef && bytes[at + 1] === 0xbf && bytes[at + 2] === 0xbd;
}

/**
 * An expression of the library's in the browser's words.
 *
 * There `\s` is Unicode's White_Space, which has U+0085 and lacks U+FEFF; and a group `(?i:…)` is not everywhere known.
 */
export function expression(pattern: string): RegExp {
  const anyCase = pattern.replace(/\(\?i:([^)]*)\)/g, (_, inner: string) => `(?:${inner.replace(/[a-z]/g, bothCases)})`);
  return new RegExp(anyCase.replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}"), "gu");
}

/** Small, large, and the long s, which is an s to those who ignore case. */
function bothCases(letter: string): string {
  return `[${letter}${letter.toUpperCase()}${letter === "s" ? "ſ" : ""}]`;
}
