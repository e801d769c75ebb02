/** The model in the file as the one who answers the page's questions, with answers like those of `glass serve`. */
import { Problem, type Run, type Source } from "../lib/api";
import { ANSWERS, type Binary } from "./answers";
import { type WriteQuestion, writing } from "./answers/write";
import type { Shared } from "./shared";

/** Why a view that another one asks for is not there. */
const ABSENT: Record<string, string> = {
  roles: "head roles are measured on the run's own text, which is not in a shared file",
};

export class Embedded implements Source {
  constructor(readonly shared: Shared) {}

  /** Whether there is an answer for a view of this name. */
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
    else throw new Problem(`a shared file has no ${path}`, "glass serve has it.");
  }

  async #answer(view: string, question: object): Promise<object> {
    await new Promise((go) => setTimeout(go)); // so that the page is drawn before the model works
    const answer = ANSWERS[view];
    if (answer === undefined) throw new Problem(ABSENT[view] ?? `a shared file has no view ${view}`, "glass serve has it.");
    return answer(this.shared, question as never);
  }
}

/** An answer in numbers as the server sends it: the length of the header, the header, the numbers. */
function packed({ header, data }: Binary): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const whole = new Uint8Array(4 + text.length + data.byteLength);
  new DataView(whole.buffer).setUint32(0, text.length, true);
  whole.set(text, 4);
  whole.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 4 + text.length);
  return whole.buffer;
}
