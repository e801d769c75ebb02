/** Sampling settings, which are kept in the address and shared by all views that sample. */
import { place } from "./place.svelte";

export interface Drawing {
  temperature: number;
  top_k: number | null;
  top_p: number | null;
  min_p: number | null;
  repetition_penalty: number;
  seed: number;
}

/** Choices for top-k; null: all tokens. */
export const KEPT: readonly (number | null)[] = [1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000, 5000, null];

/** A number that is kept in the address under this name, limited to a range. */
export function kept(name: string, otherwise: number, min: number, max: number): number {
  const value = Number(place.word(name, String(otherwise)));
  return Number.isFinite(value) ? Math.max(min, Math.min(max, value)) : otherwise;
}

/** The current sampling settings, as reactive state. */
export function drawing(temperature: number): Drawing {
  const most = kept("k", 0, 0, 1e6);
  const share = kept("p", 1, 0.01, 1);
  const least = kept("m", 0, 0, 1);
  return {
    temperature: kept("t", temperature, 0, 3),
    top_k: most >= 1 ? Math.round(most) : null,
    top_p: share < 1 ? share : null,
    min_p: least > 0 ? least : null,
    repetition_penalty: kept("r", 1, 1, 3),
    seed: Math.round(kept("seed", 0, 0, 2 ** 32 - 1)),
  };
}
