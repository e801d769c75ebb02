/** State of a long task that a button starts on the server. */
export interface BackgroundTask {
  state: "idle" | "waiting" | "working" | "failed" | "done";
  error: { what: string; remedy: string } | null;
}

/** Whether the task is queued or running. */
export function isActive(task: BackgroundTask): boolean {
  return task.state === "waiting" || task.state === "working";
}
