/** The table of views: what the page can show, in the order in which it is shown. */
import type { Component } from "svelte";

import type { Run } from "../lib/api";

export interface ViewEntry {
  /** In the address, and of the server's view where there is one of the same name. */
  name: string;
  title: string;
  group: "Use" | "Read" | "Why" | "Learnt" | "Compare";
  /** Whether it looks at the text at the top of the page. */
  reads: boolean;
  load: () => Promise<{ default: Component<{ run: Run }> }>;
  /** Why a run has nothing to show here; null if it has. */
  missing?: (run: Run) => string | null;
}

export const VIEWS: readonly ViewEntry[] = [
  { name: "tokens", title: "Tokens", group: "Read", reads: true, load: () => import("./Tokens.svelte") },
];

export const GROUPS = ["Use", "Read", "Why", "Learnt", "Compare"] as const;
