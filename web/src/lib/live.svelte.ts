/** What a run that is training writes, as it comes: lines of its metrics, and checkpoints. */

export interface Line {
  step: number;
  loss?: number | null;
  learning_rate?: number | null;
  gradient_norm?: number | null;
  validation_loss?: number | null;
}

/** The lines that came since `follow` began. */
export class Live {
  lines = $state.raw<Line[]>([]);
  /** Whether the run is being followed now. */
  on = $state(false);

  /**
   * Call it while a component is made.
   *
   * `from`: which run, and after which of its steps; null follows none. `onchange` is called when it has another
   * checkpoint, and when it has ended.
   */
  constructor(from: () => { run: string; after: number } | null, onchange: () => void) {
    $effect(() => {
      const asked = from();
      if (asked === null) return;
      this.lines = [];
      const source = new EventSource(`api/runs/${encodeURIComponent(asked.run)}/events?after=${asked.after}`);
      let named = "";
      source.onopen = () => (this.on = true);
      source.onerror = () => (this.on = source.readyState === EventSource.OPEN);
      source.addEventListener("metrics", (event) => (this.lines = [...this.lines, JSON.parse(event.data) as Line]));
      source.addEventListener("checkpoint", (event) => {
        if (named !== "" && named !== event.data) onchange(); // the first one says only what is there already
        named = event.data;
      });
      source.addEventListener("end", () => {
        source.close();
        this.on = false;
        onchange();
      });
      return () => {
        source.close();
        this.on = false;
      };
    });
  }
}
