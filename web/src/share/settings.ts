/** What a model is made of: the fields of the library's settings that its forward pass depends on, all resolved. */
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
  /** Of the norms of queries and keys. */
  qk_eps: number;
  head_transform: boolean;
  shared_embedding: boolean;
  /** Whether it names a class of the whole text; and what of its vectors the head reads then. */
  classifier: boolean;
  pooling: "mean" | "first";
  embedding_scale: boolean;
  rotary_base: number;
  relative_max_distance: number;
  /** The numbers of the heads that each attention has, such as `dec.0.self`: [0, 1, 3]. */
  attentions: Record<string, number[]>;
}

/** Which key head each query head of an attention asks: of those that are there (Ainslie et al. 2023). */
export function keyHeads(settings: Settings, heads: readonly number[]): number[] {
  const asked = heads.map((head) => Math.floor((head * settings.kv_heads) / settings.heads));
  const there = [...new Set(asked)].sort((a, b) => a - b);
  return asked.map((head) => there.indexOf(head));
}
