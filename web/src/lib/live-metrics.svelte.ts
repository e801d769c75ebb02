/** Metrics and checkpoints of a run during training, as they are written. */

/** A line of the metrics. */
export interface MetricsLine {
  step: number;
  loss?: number | null;
  learning_rate?: number | null;
  gradient_norm?: number | null;
  validation_loss?: number | null;
}

/** Follows a run during training. */
export class LiveMetrics {
  lines = $state.raw<MetricsLine[]>([]);
  /** Whether the connection is open. */
  connected = $state(false);

  /**
   * Call it when a component is created.
   *
   * `from`: the run to follow, and the step after which metrics are sent; null: none. `onchange` is called when the run
   * has a new checkpoint, and when its training has ended.
   */
  constructor(from: () => { run: string; after: number } | null, onchange: () => void) {
    $effect(() => {
      const followed = from();
      if (followed === null) return;
      this.lines = [];
      const source = new EventSource(`api/runs/${encodeURIComponent(followed.run)}/events?after=${followed.after}`);
      let checkpoint = "";
      source.onopen = () => (this.connected = true);
      source.onerror = () => (this.connected = source.readyState === EventSource.OPEN);
      source.addEventListener("metrics", (event) => (this.lines = [...this.lines, JSON.parse(event.data) as MetricsLine]));
      source.addEventListener("checkpoint", (event) => {
        if (checkpoint !== "" && checkpoint !== event.data) onchange(); // the first event names the existing checkpoint
        checkpoint = event.data;
      });
      source.addEventListener("end", () => {
        source.close();
        this.connected = false;
        onchange();
      });
      return () => {
        source.close();
        this.connected = false;
      };
    });
  }
}
