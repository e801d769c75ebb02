/** Roles of the heads, measured as in `glass heads` on the run's own data. */
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
  /** Roles of the head, the largest score first. */
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
  /** Reason why importance could not be measured; null if it was. */
  importance: string | null;
  python: string;
}

const TOKEN_ROLES: readonly string[] = ["previous", "next", "self", "first", "duplicate"];

/** Name of a role on the page, such as "previous-token" or "rare word". */
export function roleName(role: string): string {
  return TOKEN_ROLES.includes(role) ? `${role}-token` : role.replaceAll("_", " ");
}

const PAUSE = 700;

/** The report, which the server computes once, in the background; wait for it. */
export async function rolesOf(run: string, signal: AbortSignal): Promise<Roles> {
  for (;;) {
    const answer = await ask<Roles | { ready: false }>(run, "roles", {}, signal);
    if (answer.ready) return answer;
    await new Promise((go) => setTimeout(go, PAUSE));
  }
}
