/** Whether this browser computes what the library computed when it wrote the file. */
import type { Shared } from "./shared";
import { rowOf } from "./tensors";

/** The largest difference of a logit on the row that the file brings along; null where it brings none. */
export function largestDifference({ header, model }: Shared): number | null {
  if (header.check === undefined) return null;
  const { ids, source, logits } = header.check.row;
  const own = model.pass(ids, source).logits;
  const last = rowOf(own, own.rows - 1);
  return Math.max(...logits.map(([id, logit]) => Math.abs(last[id]! - logit)));
}
