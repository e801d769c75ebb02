/** Source of answers that are computed with the model in the file, with the same fields as those of `glass serve`. */
import { Problem, type Run, type Source } from "../lib/api";
import { ANSWERS, type Binary } from "./answers";
import { type WriteQuestion, writing } from "./answers/write";
import type { Shared } from "./shared";

/** Reasons why some views are not available. */
const ABSENT: Record<string, string> = {
  roles: "head roles are measured on the run's own text, which is not in a shared file",
};

export class Embedded implements Source {
  constructor(readonly shared: Shared) {}

  /** Whether the file can answer the view of this name. */
  has(view: string): boolean {
    return view in ANSWERS;
  }

  async listRuns(): Promise<Run[]> {
    return [this.shared.run];
  }

  async ask(_: string, view: string, question: object): Promise<unknown> {
    return this.#answer(view, question);
  }

  async askBytes(_: string, view: string, question: object): Promise<ArrayBuffer> {
    return packed((await this.#answer(view, question)) as Binary);
  }

  async *events(path: string, body: object, signal: AbortSignal): AsyncGenerator<unknown> {
    if (path.endsWith("/write/stream")) yield* writing(this.shared, body as WriteQuestion, signal);
    else throw new Problem(`a shared file cannot answer ${path}`, "Serve the run: glass serve RUN.");
  }

  async #answer(view: string, question: object): Promise<object> {
    await new Promise((go) => setTimeout(go)); // let the page be drawn before the model runs
    const answer = ANSWERS[view];
    if (answer === undefined) throw new Problem(ABSENT[view] ?? `a shared file has no view ${view}`, "Serve the run: glass serve RUN.");
    return answer(this.shared, question as never);
  }
}

/** A binary answer in the server's format: the length of the header, the header, the numbers. */
function packed({ header, data }: Binary): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const whole = new Uint8Array(4 + text.length + data.byteLength);
  new DataView(whole.buffer).setUint32(0, text.length, true);
  whole.set(text, 4);
  whole.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 4 + text.length);
  return whole.buffer;
}
