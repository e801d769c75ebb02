/** Colours of numbers: one ramp for what is never negative, one for what has a sign. Read from the page's theme. */

type Rgb = [number, number, number];

/** From no weight to all weight; even steps of lightness, readable in grey. */
const RAMPS: Record<"light" | "dark", Rgb[]> = {
  light: [[246, 248, 247], [196, 224, 222], [116, 184, 186], [38, 134, 145], [9, 84, 100], [6, 40, 58]],
  dark: [[18, 25, 28], [20, 62, 74], [22, 108, 122], [46, 160, 168], [128, 211, 203], [240, 250, 226]],
};
const MASKED: Record<"light" | "dark", Rgb> = { light: [226, 226, 230], dark: [38, 40, 48] };
const SIGNED: Record<"light" | "dark", { minus: Rgb; zero: Rgb; plus: Rgb }> = {
  light: { minus: [180, 83, 14], zero: [250, 250, 250], plus: [13, 110, 120] },
  dark: { minus: [242, 162, 92], zero: [23, 30, 33], plus: [87, 199, 209] },
};

export type Scale = "linear" | "sqrt" | "log";
const FLOOR = 1e-4; // of the log scale

/** Where a share between 0 and 1 stands on a scale, from 0 to 1. */
export function scaled(share: number, scale: Scale): number {
  if (scale === "sqrt") return Math.sqrt(share);
  return scale === "log" ? Math.max(0, 1 - Math.log10(Math.max(share, FLOOR)) / Math.log10(FLOOR)) : share;
}

export function isDark(): boolean {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Colours of values: of weights from 0 to 1 (NaN: masked), or of signed values by the largest size among them. */
export function painter(kind: "weight" | "signed", scale: Scale = "linear", largest = 1): (value: number) => Rgb {
  const mode = isDark() ? "dark" : "light";
  if (kind === "weight") {
    const ramp = RAMPS[mode];
    return (value) => (Number.isNaN(value) ? MASKED[mode] : along(ramp, scaled(Math.min(1, value / largest), scale)));
  }
  const { minus, zero, plus } = SIGNED[mode];
  return (value) => {
    if (Number.isNaN(value)) return MASKED[mode];
    return along([zero, value < 0 ? minus : plus], Math.min(1, Math.abs(value) / (largest || 1)));
  };
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}

/** Whether dark letters are read better on this colour. */
export function wantsDarkInk([red, green, blue]: Rgb): boolean {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140;
}

function along(ramp: Rgb[], share: number): Rgb {
  const at = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
  const from = Math.min(Math.floor(at), ramp.length - 2);
  const [low, high] = [ramp[from]!, ramp[from + 1]!];
  return low.map((part, index) => Math.round(part + (at - from) * (high[index]! - part))) as Rgb;
}
