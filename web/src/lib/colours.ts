/** Colours of numbers in the page's theme: a ramp for weights, and a ramp for signed values. */
import { MediaQuery } from "svelte/reactivity";

import { pageState } from "./page-state.svelte";

type Rgb = [number, number, number];

/** Colours from weight 0 to weight 1, in even steps of lightness, so that they stay readable in greyscale. */
const RAMPS: Record<"light" | "dark", Rgb[]> = {
  light: [[246, 248, 247], [196, 224, 222], [116, 184, 186], [38, 134, 145], [9, 84, 100], [6, 40, 58]],
  dark: [[18, 25, 28], [20, 62, 74], [22, 108, 122], [46, 160, 168], [128, 211, 203], [240, 250, 226]],
};
const MASKED: Record<"light" | "dark", Rgb> = { light: [226, 226, 230], dark: [38, 40, 48] };
const SIGNED: Record<"light" | "dark", { minus: Rgb; zero: Rgb; plus: Rgb }> = {
  light: { minus: [164, 73, 10], zero: [250, 250, 250], plus: [13, 110, 120] },
  dark: { minus: [242, 162, 92], zero: [23, 30, 33], plus: [87, 199, 209] },
};

const system = new MediaQuery("(prefers-color-scheme: dark)");

export type Scale = "linear" | "sqrt" | "log";
const FLOOR = 1e-4; // of the log scale

/** Position of a fraction (0 to 1) on a scale, from 0 to 1. */
export function scaled(fraction: number, scale: Scale): number {
  if (scale === "sqrt") return Math.sqrt(fraction);
  return scale === "log" ? Math.max(0, 1 - Math.log10(Math.max(fraction, FLOOR)) / Math.log10(FLOOR)) : fraction;
}

/** Whether the page is dark. It is reactive: effects and markup that read it are updated when it changes. */
export function isDark(): boolean {
  return pageState.theme === "system" ? system.current : pageState.theme === "dark";
}

const SHADES = 512;

/** The function from a value to its colour, for weights from 0 to `largest` or signed values up to ±`largest`; NaN: masked. */
export function painter(kind: "weight" | "signed", scale: Scale = "linear", largest = 1): (value: number) => Rgb {
  const mode = isDark() ? "dark" : "light";
  if (kind === "weight") {
    const shades = colourTable(RAMPS[mode]);
    return (value) => (Number.isNaN(value) ? MASKED[mode] : lookUp(shades, scaled(Math.min(1, value / largest), scale)));
  }
  const { minus, zero, plus } = SIGNED[mode];
  const below = colourTable([zero, minus]);
  const above = colourTable([zero, plus]);
  return (value) => {
    if (Number.isNaN(value)) return MASKED[mode];
    return lookUp(value < 0 ? below : above, Math.min(1, Math.abs(value) / (largest || 1)));
  };
}

/** A ramp as a table, because a large map needs a hundred thousand colours. */
function colourTable(ramp: Rgb[]): Rgb[] {
  return Array.from({ length: SHADES + 1 }, (_, at) => interpolate(ramp, at / SHADES));
}

function lookUp(shades: readonly Rgb[], fraction: number): Rgb {
  return shades[Math.round(Math.max(0, fraction || 0) * SHADES)]!;
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}

/** Black or white, whichever has the higher contrast on this colour: at least 4.5 to 1. */
export function textColourOn(colour: Rgb): string {
  const [red, green, blue] = colour.map((part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4)) as Rgb;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

function interpolate(ramp: Rgb[], fraction: number): Rgb {
  const at = Math.max(0, Math.min(1, fraction)) * (ramp.length - 1);
  const from = Math.min(Math.floor(at), ramp.length - 2);
  const low = ramp[from]!;
  const high = ramp[from + 1]!;
  return low.map((part, index) => Math.round(part + (at - from) * (high[index]! - part))) as Rgb;
}
