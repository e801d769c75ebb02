/** The runs that are served: looked at again and again, so that a run that trains appears, and a server that was gone. */
import { listRuns, Problem, type Run } from "./api";

const [GONE, TRAINING, QUIET] = [1500, 3000, 6000]; // milliseconds until the next look

export class Runs {
  /** Null: they are not known yet. */
  list = $state.raw<Run[] | null>(null);
  /** Why they cannot be listed now; the last ones that were known stay. */
  problem = $state.raw<Problem | null>(null);

  #seen = "";

  /** Call it while a component is made. */
  constructor() {
    $effect(() => {
      let timer = 0;
      let over = false;
      const again = async (): Promise<void> => {
        if (document.visibilityState === "visible" || this.list === null) await this.look();
        if (!over) timer = window.setTimeout(() => void again(), this.#pause());
      };
      void again();
      return () => {
        over = true;
        clearTimeout(timer);
      };
    });
  }

  /** Look now: whoever made a run calls it. */
  async look(): Promise<void> {
    try {
      const found = await listRuns();
      const now = JSON.stringify(found);
      if (now !== this.#seen || this.problem !== null) this.list = found; // new objects: views ask anew
      [this.#seen, this.problem] = [now, null];
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
    }
  }

  #pause(): number {
    if (this.problem !== null) return GONE;
    return this.list?.some((run) => run.training || run.step === null) ? TRAINING : QUIET;
  }
}
