/** Names of heads, such as `dec.1.cross.2`, as in the library and its commands. */
import type { Run } from "./api";

export interface HeadName {
  /** Stack and kind of attention, such as `dec.self`. */
  part: string;
  layer: number;
  head: number;
}

const TITLES: Record<string, string> = {
  "enc.self": "Encoder", "dec.self": "Decoder", "dec.cross": "Cross-attention",
};

export function titleOf(part: string): string {
  return TITLES[part] ?? part;
}

/** The components of a head's name; null if the name is not valid. */
export function parseHeadName(name: string): HeadName | null {
  const found = /^(enc|dec)\.(\d+)\.(self|cross)\.(\d+)$/.exec(name);
  return found && { part: `${found[1]}.${found[3]}`, layer: Number(found[2]), head: Number(found[4]) };
}

export function siteOf(part: string, layer: number): string {
  return part.replace(".", `.${layer}.`);
}

/** All heads of a run, in the order of the forward pass. */
export function headsOf(run: Run): string[] {
  return Object.entries(run.attentions).flatMap(([site, heads]) => heads.map((head) => `${site}.${head}`));
}

/** The requested head or, if the run does not have it, the first head. */
export function headOrFirst(run: Run, requested: string): string {
  const all = headsOf(run);
  return all.includes(requested) ? requested : (all[0] ?? "");
}
