/** Source of answers that are computed with the model in the file, with the same fields as those of `glass serve`. */
import { GlassError, type Run, type Source } from "../lib/api";
import { ANSWERS, type Binary } from "./answers";
import { generationEvents, type WriteQuestion } from "./answers/write";
import type { SharedFile } from "./shared-file";

/** Reasons why some views are not available. */
const UNAVAILABLE: Record<string, string> = {
  roles: "Head roles are measured on the run's own text, which is not in a shared file.",
};

export class SharedFileSource implements Source {
  constructor(readonly shared: SharedFile) {}

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
    return encodeBinary((await this.#answer(view, question)) as Binary);
  }

  async *events(path: string, body: object, signal: AbortSignal): AsyncGenerator<unknown> {
    if (path.endsWith("/write/stream")) yield* generationEvents(this.shared, body as WriteQuestion, signal);
    else throw new GlassError(`A shared file cannot answer ${path}.`, "Serve the run: glass serve RUN.");
  }

  async #answer(view: string, question: object): Promise<object> {
    await new Promise((go) => setTimeout(go)); // let the page be drawn before the model runs
    const answer = ANSWERS[view];
    if (answer === undefined) throw new GlassError(UNAVAILABLE[view] ?? `A shared file has no view ${view}.`, "Serve the run: glass serve RUN.");
    return answer(this.shared, question as never);
  }
}

/** A binary answer in the server's format: the length of the header, the header, the numbers. */
function encodeBinary({ header, data }: Binary): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const whole = new Uint8Array(4 + text.length + data.byteLength);
  new DataView(whole.buffer).setUint32(0, text.length, true);
  whole.set(text, 4);
  whole.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 4 + text.length);
  return whole.buffer;
}
