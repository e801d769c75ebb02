/** The verification of a run, for the header of the page and the view Verification report. */
import { ask } from "./api";
import { type BackgroundTask, isActive } from "./background-task";
import { RequestState } from "./request-state.svelte";

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

export interface Verification {
  names: string[];
  report: { ok: boolean; checkpoint: string; date: string; text: string; seconds: number; versions: Record<string, string>; checks: Check[] } | null;
  current: boolean;
  work: BackgroundTask;
  made: Check[];
  python: string;
}

/** Number of verifications started; components that show a report request the verification again when it changes. */
class VerificationStarts {
  count = $state(0);
}
export const verificationStarts = new VerificationStarts();

/** The verification of a run, requested again while checks are running. Call it when a component is created. */
export function verificationOf(run: () => string | null): RequestState<Verification> {
  return new RequestState<Verification>(
    () => {
      void verificationStarts.count;
      const name = run();
      return name === null ? null : (signal) => ask(name, "verification", {}, signal);
    },
    0,
    (answer) => isActive(answer.work),
  );
}

/** The checks to show: those of the running verification, or of the report if it was made with the loaded weights. */
export function checksOf(verification: Verification): Check[] {
  if (isActive(verification.work)) return verification.made;
  return verification.current ? (verification.report?.checks ?? []) : [];
}

/** Summary of the checks in words. */
export function verdictOf(verification: Verification): string {
  const checks = checksOf(verification);
  if (isActive(verification.work)) return `verifying: ${checks.length} of ${verification.names.length} checks done`;
  if (checks.length === 0) return "not verified yet";
  const [passed, failed] = [true, false].map((ok) => checks.filter((check) => check.ok === ok).length);
  const rest = checks.length - passed! - failed!;
  return `${passed} of ${checks.length} checks passed, ${failed} failed${rest > 0 ? `, ${rest} did not apply or could not run` : ""}`;
}
