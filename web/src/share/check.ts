/** Comparison of the browser's logits with those that the library wrote to the file. */
import type { SharedFile } from "./shared-file";
import { rowOf } from "./tensors";

/** The largest difference of a logit at the end of the check row in the file; null if the file has no check row. */
export function largestDifference({ header, model }: SharedFile): number | null {
  if (header.check === undefined) return null;
  const { ids, source, logits } = header.check.row;
  const own = model.pass(ids, source).logits;
  const last = rowOf(own, own.rows - 1);
  return Math.max(...logits.map(([id, logit]) => Math.abs(last[id]! - logit)));
}
