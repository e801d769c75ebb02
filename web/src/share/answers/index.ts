/** Answers of a shared file by view name, with the fields of the server's answers. */
import type { SharedFile } from "../shared-file";
import { alignment, focus, heads, map, score } from "./attention";
import { beams } from "./beams";
import { lens } from "./lens";
import { receipt } from "./receipt";
import { sampling } from "./sampling";
import { tokens } from "./tokens";
import { write } from "./write";

/** A binary answer: a header and numbers. */
export interface Binary {
  header: object;
  data: Float32Array | Uint8Array;
}

export const ANSWERS: Record<string, (shared: SharedFile, question: never) => object> = {
  write, tokens, attention: map, score, heads, focus, alignment, lens, receipt, sampling, beams,
};
