/** A question to the server as reactive state: asked again when what it depends on changes. */
import { Problem } from "./api";

const AGAIN = 1000; // milliseconds until an unfinished answer is asked for again

/**
 * The newest answer to a question.
 *
 * The last answer stays while a new one is on its way, so that nothing on the page jumps. `question` is read in an
 * effect: it is asked again when any state that it reads changes; null asks nothing.
 */
export class Asked<Answer> {
  answer = $state.raw<Answer | null>(null);
  problem = $state.raw<Problem | null>(null);
  waiting = $state(false);

  #unfinished: (answer: Answer) => boolean;

  /**
   * Call it while a component is made.
   *
   * `delay`: milliseconds of rest that are waited for, such as while someone types. `unfinished`: whether an answer
   * says that the server is still at work on it; then it is asked for again, every second.
   */
  constructor(
    question: () => ((signal: AbortSignal) => Promise<Answer>) | null,
    delay = 0,
    unfinished: (answer: Answer) => boolean = () => false,
  ) {
    this.#unfinished = unfinished;
    $effect(() => {
      const send = question();
      if (send === null) {
        this.waiting = false;
        return;
      }
      this.waiting = true; // from now on, and not only when the delay is over: what is shown is no longer the answer
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
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
        if (!signal.aborted) await this.#run(send, signal);
        return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
      this.answer = null;
    }
    this.waiting = false;
  }
}
