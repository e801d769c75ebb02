/** Long work that a view asks the server for with a button, and how far it is. */
export interface Work {
  state: "idle" | "waiting" | "working" | "failed" | "done";
  error: { what: string; remedy: string } | null;
}

/** Whether there will be more to say of it soon. */
export function goesOn(work: Work): boolean {
  return work.state === "waiting" || work.state === "working";
}
