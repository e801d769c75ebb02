/** A request to the source as reactive state, sent again when the state it reads changes. */
import { GlassError } from "./api";

const POLL_INTERVAL = 1000; // milliseconds until an unfinished answer is requested again

/**
 * The latest answer to a request.
 *
 * The previous answer stays until the next one arrives, so that the page does not jump. `createRequest` runs in an effect:
 * the request is sent again when any state that it reads changes; null sends none.
 */
export class RequestState<Answer> {
  answer = $state.raw<Answer | null>(null);
  problem = $state.raw<GlassError | null>(null);
  waiting = $state(false);

  #unfinished: (answer: Answer) => boolean;

  /**
   * Call it when a component is created.
   *
   * `delay`: milliseconds without a change before the request is sent, for example while someone types. `unfinished`:
   * whether an answer shows that the server is still working; then the request is repeated every second.
   */
  constructor(
    createRequest: () => ((signal: AbortSignal) => Promise<Answer>) | null,
    delay = 0,
    unfinished: (answer: Answer) => boolean = () => false,
  ) {
    this.#unfinished = unfinished;
    $effect(() => {
      const send = createRequest();
      if (send === null) {
        this.waiting = false;
        return;
      }
      this.waiting = true; // set before the delay, because the answer shown is already outdated
      const stop = new AbortController();
      const timer = setTimeout(() => void this.#run(send, stop.signal), delay);
      return () => {
        clearTimeout(timer);
        stop.abort();
      };
    });
  }

  async #run(send: (signal: AbortSignal) => Promise<Answer>, signal: AbortSignal): Promise<void> {
    try {
      const answer = await send(signal);
      if (signal.aborted) return;
      this.answer = answer;
      this.problem = null;
      if (this.#unfinished(answer)) {
        await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL));
        if (!signal.aborted) await this.#run(send, signal);
        return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof GlassError)) throw error;
      this.problem = error;
      this.answer = null;
    }
    this.waiting = false;
  }
}
