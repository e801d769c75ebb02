/**
 * The served runs, listed again every few seconds while the page is visible, so that it notices new checkpoints and a
 * restarted server.
 */
import { GlassError, listRuns, type Run } from "./api";

/** Milliseconds until the next request if the server did not answer. */
const RETRY_INTERVAL = 1500;
/** Milliseconds until the next request while a run is in training or has no checkpoint yet. */
const TRAINING_INTERVAL = 3000;
/** Milliseconds until the next request otherwise. */
const IDLE_INTERVAL = 6000;

export class Runs {
  /** Null: not received yet. */
  list = $state.raw<Run[] | null>(null);
  /** Error of the last request; `list` keeps the last runs received. */
  problem = $state.raw<GlassError | null>(null);

  #lastList = "";

  /** Call it when a component is created. */
  constructor() {
    $effect(() => {
      let timer = 0;
      let over = false;
      const again = async (): Promise<void> => {
        if (document.visibilityState === "visible" || this.list === null) await this.refresh();
        if (!over) timer = window.setTimeout(() => void again(), this.#interval());
      };
      void again();
      return () => {
        over = true;
        clearTimeout(timer);
      };
    });
  }

  /** List the runs now, for example after a new run was written. */
  async refresh(): Promise<void> {
    try {
      const found = await listRuns();
      const now = JSON.stringify(found);
      if (now !== this.#lastList || this.problem !== null) this.list = found; // new objects, so that the views send their requests again
      this.#lastList = now;
      this.problem = null;
    } catch (error) {
      if (!(error instanceof GlassError)) throw error;
      this.problem = error;
    }
  }

  #interval(): number {
    if (this.problem !== null) return RETRY_INTERVAL;
    return this.list?.some((run) => run.training || run.step === null) ? TRAINING_INTERVAL : IDLE_INTERVAL;
  }
}
