/** The settings that the forward pass depends on, with defaults resolved; the fields are the library's. */
import type { Activation } from "./activations";
import type { NormKind } from "./tensors";

export interface Settings {
  family: "decoder" | "encoder" | "encoder-decoder";
  context: number;
  width: number;
  heads: number;
  kv_heads: number;
  head_width: number;
  positions: "learned" | "sinusoidal" | "rotary" | "alibi" | "relative" | "none";
  norm: NormKind;
  norm_eps: number;
  norm_order: "pre" | "post" | "output";
  activation: Activation;
  window: number | null;
  /** Epsilon of the query and key norms. */
  qk_eps: number;
  head_transform: boolean;
  shared_embedding: boolean;
  /** Whether the model classifies the text, and how its vectors are pooled. */
  classifier: boolean;
  pooling: "mean" | "first";
  embedding_scale: boolean;
  rotary_base: number;
  relative_max_distance: number;
  /** Numbers of the heads of each attention layer, such as `dec.0.self`: [0, 1, 3]. */
  attentions: Record<string, number[]>;
}

/** Index of the key head of each query head, among the key heads in use (Ainslie et al. 2023). */
export function keyHeads(settings: Settings, heads: readonly number[]): number[] {
  const keyHeadOf = heads.map((head) => Math.floor((head * settings.kv_heads) / settings.heads));
  const used = [...new Set(keyHeadOf)].sort((a, b) => a - b);
  return keyHeadOf.map((head) => used.indexOf(head));
}
