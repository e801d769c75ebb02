/** What heads do, as `glass heads` measures it on the run's own validation text. */
import { ask } from "./api";

export interface Role {
  score: number;
  chance: number | null;
  interval: [low: number, high: number] | null;
  threshold: number;
  earned: boolean;
}

export interface HeadRoles {
  name: string;
  /** Those that it has earned, the clearest first. */
  is: string[];
  roles: Record<string, Role>;
  numbers: Record<string, number>;
  importance: number | null;
}

export interface Roles {
  ready: true;
  heads: HeadRoles[];
  left_out: { part: string; role: string; reason: string }[];
  notes: string[];
  /** Why importance could not be measured; null if it was. */
  importance: string | null;
  python: string;
}

const PAUSE = 700;

/** The report, waited for: it is worked out once, in the background. */
export async function rolesOf(run: string, signal: AbortSignal): Promise<Roles> {
  for (;;) {
    const answer = await ask<Roles | { ready: false }>(run, "roles", {}, signal);
    if (answer.ready) return answer;
    await new Promise((go) => setTimeout(go, PAUSE));
  }
}
