/** Sampling settings, which are kept in the address and shared by all views that sample. */
import { pageState } from "./page-state.svelte";

export interface SamplingSettings {
  temperature: number;
  top_k: number | null;
  top_p: number | null;
  min_p: number | null;
  repetition_penalty: number;
  seed: number;
}

/** Choices for top-k; null: all tokens. */
export const TOP_K_CHOICES: readonly (number | null)[] = [1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000, 5000, null];

/** A number that is kept in the address under this name, limited to a range. */
export function addressNumber(name: string, otherwise: number, min: number, max: number): number {
  const value = Number(pageState.string(name, String(otherwise)));
  return Number.isFinite(value) ? Math.max(min, Math.min(max, value)) : otherwise;
}

/** The current sampling settings, as reactive state. */
export function samplingSettings(temperature: number): SamplingSettings {
  const topK = addressNumber("k", 0, 0, 1e6);
  const topP = addressNumber("p", 1, 0.01, 1);
  const minP = addressNumber("m", 0, 0, 1);
  return {
    temperature: addressNumber("t", temperature, 0, 3),
    top_k: topK >= 1 ? Math.round(topK) : null,
    top_p: topP < 1 ? topP : null,
    min_p: minP > 0 ? minP : null,
    repetition_penalty: addressNumber("r", 1, 1, 3),
    seed: Math.round(addressNumber("seed", 0, 0, 2 ** 32 - 1)),
  };
}
