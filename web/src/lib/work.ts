/** State of long work that a button starts on the server. */
export interface Work {
  state: "idle" | "waiting" | "working" | "failed" | "done";
  error: { what: string; remedy: string } | null;
}

/** Whether the work is queued or running. */
export function goesOn(work: Work): boolean {
  return work.state === "waiting" || work.state === "working";
}
