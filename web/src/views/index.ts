/** The views of the page, in the order of the menu. */
import type { Component } from "svelte";

import type { Run } from "../lib/api";

type Load = () => Promise<{ default: Component<{ run: Run }> }>;

export interface ViewEntry {
  /** Name of the view in the address of the page. */
  name: string;
  title: string;
  /** Other titles, for runs of these tasks. */
  taskTitles?: Partial<Record<Run["task"], string>>;
  group: "Use" | "Read" | "Why" | "Learned" | "Compare";
  /** Whether the view uses the text at the top of the page. */
  usesText: boolean;
  load: Load;
  /** Other components, for runs of these tasks. */
  taskComponents?: Partial<Record<Run["task"], Load>>;
  /** Reason why the view does not apply to a run; null if it does. */
  unavailable?: (run: Run) => string | null;
}

const NO_SAMPLING = "it does not sample tokens. Choose a run that continues text, translates or summarizes";

export const VIEWS: readonly ViewEntry[] = [
  {
    name: "write", title: "Write", group: "Use", usesText: false, load: () => import("./Write.svelte"),
    taskComponents: { chat: () => import("./Chat.svelte") },
    taskTitles: { translate: "Translate", summarize: "Summarize", classify: "Classify", masked: "Fill", chat: "Chat" },
  },
  {
    name: "sampling", title: "Sampling", group: "Use", usesText: true, load: () => import("./Sampling.svelte"),
    unavailable: (run) => (run.task === "masked" || run.task === "classify" ? `${run.name} was trained to predict ${run.task === "masked" ? "masked tokens" : "labels"}: ${NO_SAMPLING}.` : null),
  },
  { name: "ablation", title: "Ablation", group: "Why", usesText: true, load: () => import("./Ablation.svelte") },
  { name: "compare", title: "Two runs", group: "Compare", usesText: true, load: () => import("./Compare.svelte") },
  { name: "machines", title: "Three model families", group: "Compare", usesText: false, load: () => import("./Machines.svelte") },
  { name: "tokens", title: "Tokens", group: "Read", usesText: true, load: () => import("./Tokens.svelte") },
  { name: "tape", title: "Forward tape", group: "Read", usesText: true, load: () => import("./Tape.svelte") },
  { name: "attention", title: "Attention map", group: "Read", usesText: true, load: () => import("./Attention.svelte") },
  { name: "score", title: "Score anatomy", group: "Read", usesText: true, load: () => import("./Score.svelte") },
  { name: "heads", title: "All heads", group: "Read", usesText: true, load: () => import("./Heads.svelte") },
  { name: "focus", title: "Row focus", group: "Read", usesText: true, load: () => import("./Focus.svelte") },
  {
    name: "alignment", title: "Alignment", group: "Read", usesText: true, load: () => import("./Alignment.svelte"),
    unavailable: (run) => (run.family === "encoder-decoder" ? null : `${run.name} has no cross-attention: it is not an encoder-decoder. Serve a run that translates or summarizes, such as one from glass train PAIRS.tsv --task translate.`),
  },
  { name: "receipt", title: "Logit receipt", group: "Why", usesText: true, load: () => import("./Receipt.svelte") },
  { name: "lens", title: "Lens grid", group: "Why", usesText: true, load: () => import("./Lens.svelte") },
  { name: "importance", title: "Importance three ways", group: "Why", usesText: true, load: () => import("./Importance.svelte") },
  { name: "embeddings", title: "Embedding map", group: "Learned", usesText: false, load: () => import("./Embeddings.svelte") },
  { name: "positions", title: "Positions", group: "Learned", usesText: true, load: () => import("./Positions.svelte") },
  { name: "replay", title: "Training replay", group: "Learned", usesText: false, load: () => import("./Replay.svelte") },
  {
    name: "loss", title: "Loss by token", group: "Learned", usesText: true, load: () => import("./Loss.svelte"),
    unavailable: (run) => {
      if (run.task === "classify") return `${run.name} predicts labels: it gives no probability to tokens, so they have no surprisal. glass evaluate prints its loss.`;
      if (run.task === "chat") return `${run.name} was trained on answers only: the tokens of a question have no loss. glass evaluate prints the loss on the answers.`;
      return null;
    },
  },
  {
    name: "probes", title: "Probes", group: "Learned", usesText: false, load: () => import("./Probes.svelte"),
    unavailable: (run) => {
      if (run.task === "lm" || run.task === "masked") return null;
      const remedy = "Serve a run of --task lm or --task masked.";
      if (run.task === "chat") return `${run.name} was trained on answers only, but the probes need a run that predicts all tokens of a text. ${remedy}`;
      return `${run.name} gives no probability to the tokens of a single text, so the probes do not apply. ${remedy}`;
    },
  },
  { name: "verification", title: "Verification report", group: "Learned", usesText: false, load: () => import("./Verification.svelte") },
];

export const GROUPS = ["Use", "Read", "Why", "Learned", "Compare"] as const;
