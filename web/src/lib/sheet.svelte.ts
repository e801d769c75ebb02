/** The proof sheet of a run, for the header of the page and the view Proof sheet. */
import { ask } from "./api";
import { Asked } from "./asked.svelte";
import { goesOn, type Work } from "./work";

export interface Check {
  name: string;
  claim: string;
  unit: string;
  measured: number | null;
  limit: number;
  /** Null: the check does not apply to the run, or could not run. */
  ok: boolean | null;
  note: string;
  seconds: number;
}

export interface Sheet {
  names: string[];
  sheet: { ok: boolean; checkpoint: string; date: string; text: string; seconds: number; versions: Record<string, string>; checks: Check[] } | null;
  current: boolean;
  work: Work;
  made: Check[];
  python: string;
}

/** Number of verifications started; components that show a sheet request it again when it changes. */
class Begun {
  times = $state(0);
}
export const begun = new Begun();

/** The sheet of a run, requested again while checks are running. Call it when a component is created. */
export function sheetOf(run: () => string | null): Asked<Sheet> {
  return new Asked<Sheet>(
    () => {
      void begun.times;
      const name = run();
      return name === null ? null : (signal) => ask(name, "proof", {}, signal);
    },
    0,
    (answer) => goesOn(answer.work),
  );
}

/** The checks to show: those of the running verification, or of the sheet if it was made with the loaded weights. */
export function checksOf(sheet: Sheet): Check[] {
  if (goesOn(sheet.work)) return sheet.made;
  return sheet.current ? (sheet.sheet?.checks ?? []) : [];
}

/** Summary of the checks in words. */
export function verdictOf(sheet: Sheet): string {
  const checks = checksOf(sheet);
  if (goesOn(sheet.work)) return `verifying: ${checks.length} of ${sheet.names.length} checks done`;
  if (checks.length === 0) return "not verified yet";
  const [passed, failed] = [true, false].map((ok) => checks.filter((check) => check.ok === ok).length);
  const rest = checks.length - passed! - failed!;
  return `${passed} of ${checks.length} checks passed, ${failed} failed${rest > 0 ? `, ${rest} did not apply or could not run` : ""}`;
}
