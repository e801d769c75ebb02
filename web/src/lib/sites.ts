/** Names of heads, `dec.1.cross.2`, as the library and its commands have them. */
import type { Run } from "./api";

export interface HeadName {
  /** `dec.self`: all attentions of a kind. */
  part: string;
  layer: number;
  head: number;
}

const TITLES: Record<string, string> = {
  "enc.self": "Encoder", "dec.self": "Decoder", "dec.cross": "Decoder to source",
};

export function titleOf(part: string): string {
  return TITLES[part] ?? part;
}

/** The parts of a name; null if it is none. */
export function parsed(name: string): HeadName | null {
  const found = /^(enc|dec)\.(\d+)\.(self|cross)\.(\d+)$/.exec(name);
  return found && { part: `${found[1]}.${found[3]}`, layer: Number(found[2]), head: Number(found[4]) };
}

export function siteOf(part: string, layer: number): string {
  return part.replace(".", `.${layer}.`);
}

/** All heads that a run has, in the order in which they run. */
export function headsOf(run: Run): string[] {
  return Object.entries(run.attentions).flatMap(([site, heads]) => heads.map((head) => `${site}.${head}`));
}

/** The head that is asked for, or where the run has no such head, the one to begin with. */
export function headOf(run: Run, asked: string): string {
  const all = headsOf(run);
  return all.includes(asked) ? asked : (all[0] ?? "");
}
