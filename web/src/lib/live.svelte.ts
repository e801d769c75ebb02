/** Metrics and checkpoints of a run during training, as they are written. */

export interface Line {
  step: number;
  loss?: number | null;
  learning_rate?: number | null;
  gradient_norm?: number | null;
  validation_loss?: number | null;
}

/** Follows a run during training. */
export class Live {
  lines = $state.raw<Line[]>([]);
  /** Whether the connection is open. */
  on = $state(false);

  /**
   * Call it when a component is created.
   *
   * `from`: the run to follow, and the step after which metrics are sent; null: none. `onchange` is called when the run
   * has a new checkpoint, and when its training has ended.
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
        if (named !== "" && named !== event.data) onchange(); // the first event names the existing checkpoint
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
