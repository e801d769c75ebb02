/** Formatting of numbers and tokens for display. Copied numbers have all digits: see `csv`. */

/** At least four significant digits, or three with an exponent: 0.01348, 12.30, 123456, −1.20e-7. */
export function figure(value: number | null): string {
  if (value === null || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return minus(value.toExponential(2));
  return minus(value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size)))));
}

/** At most two significant digits, for narrow places: 0.013, 12. */
export function brief(value: number): string {
  return minus(String(Number(value.toPrecision(2))));
}

/** A fraction between 0 and 1 in percent: 12.3 %. */
export function percent(fraction: number | null): string {
  if (fraction === null) return "–";
  return fraction > 0 && fraction < 0.0005 ? "< 0.05 %" : `${(100 * fraction).toFixed(1)} %`;
}

/** An integer with thousands separators: 1,234. */
export function count(value: number): string {
  return value.toLocaleString("en");
}

/** A number with its noun: "1 token", "1,234 tokens". `singular`: the singular, unless it is the plural without s. */
export function counted(value: number, plural: string, singular = plural.slice(0, -1)): string {
  return `${count(value)} ${value === 1 ? singular : plural}`;
}

const UNITS: Record<string, string | undefined> = { example: "text" };

/** Name on the page of the unit over which a loss is averaged. */
export function unitName(unit: string): string {
  return UNITS[unit] ?? unit;
}

/** A token with visible white space; ∅ for an empty token. */
export function visible(token: string): string {
  return token === "" ? "∅" : token.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
}

/** The first graphemes of a text: a vowel sign stays with its consonant. */
export function truncate(text: string, letters: number): string {
  const found = [...new Intl.Segmenter().segment(text)];
  return found.length <= letters ? text : found.slice(0, Math.max(1, letters - 1)).map((each) => each.segment).join("") + "…";
}

/** Rows as CSV, with all digits. */
export function csv(header: string[], rows: (string | number | null)[][]): string {
  return [header, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function cell(value: string | number | null): string {
  const text = value === null ? "" : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function minus(text: string): string {
  return text.replace("-", "−").replace("e−", "e-").replace("e+", "e");
}

const FROM_RIGHT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

/**
 * The direction of a text, by its first letter (rules P2 and P3 of the Unicode bidirectional algorithm).
 *
 * For fields filled by a script: with `dir="auto"`, Chromium may keep the direction of the previous text.
 */
export function direction(text: string): "ltr" | "rtl" {
  const letter = /\p{L}/u.exec(text)?.[0] ?? "";
  return FROM_RIGHT.test(letter) ? "rtl" : "ltr";
}
