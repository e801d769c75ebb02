/** Bytes, letters and character classes, as in the library's tokenizers. */

/** Printable letter of each byte in byte-level vocabularies (GPT-2's table). */
export const BYTE_LETTERS: readonly string[] = (() => {
  const itself = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(itself(byte) ? byte : next++));
})();

const encoder = new TextEncoder();

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Decode bytes; U+FFFD for invalid UTF-8. */
export function textOf(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** Concatenate byte arrays. */
export function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Readable text of bytes: a part of a character as `\xe0`, a newline as `\n`. */
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

/** Number of bytes of the character that begins here; 0 if none does. */
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
 * Translate a regular expression of the library to JavaScript.
 *
 * In the library, `\s` is Unicode's White_Space, which includes U+0085 but not U+FEFF. Some browsers lack `(?i:…)`.
 */
export function toRegExp(pattern: string): RegExp {
  const anyCase = pattern.replace(/\(\?i:([^)]*)\)/g, (_, inner: string) => `(?:${inner.replace(/[a-z]/g, bothCases)})`);
  return new RegExp(anyCase.replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}"), "gu");
}

/** Lowercase, uppercase, and the long s, which equals s if case is ignored. */
function bothCases(letter: string): string {
  return `[${letter}${letter.toUpperCase()}${letter === "s" ? "ſ" : ""}]`;
}
