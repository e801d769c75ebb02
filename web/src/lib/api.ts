/** What the page asks of the server. Every number on the page comes through here. */

/** What happened, and what to do: the two lines of every error of glassformer. */
export class Problem extends Error {
  readonly what: string;
  readonly remedy: string;
  readonly status: number;

  constructor(what: string, remedy: string, status = 0) {
    super(`${what}\n${remedy}`);
    this.what = what;
    this.remedy = remedy;
    this.status = status;
  }
}

/** A run, as the server lists it. */
export interface Run {
  name: string;
  /** The checkpoint that is shown, such as "step-000850"; null: there is none yet. */
  version: string | null;
  step: number | null;
  training: boolean;
  /** Why the run cannot be opened; null if it can. */
  error: { what: string; remedy: string } | null;
  task: "lm" | "masked" | "classify" | "translate" | "summarize";
  family: "decoder" | "encoder" | "encoder-decoder";
  layers: number;
  encoder_layers: number | null;
  heads: number;
  width: number;
  context: number;
  parameters: number;
  /** The heads that each attention has: a pruned run has fewer. */
  attentions: Record<string, number[]>;
  vocabulary: number;
  source_vocabulary: number | null;
  tokenizer: string;
  labels: string[];
  /** What the page begins with. */
  prompt: string;
}

/** Numbers that came as bytes, with what says how to read them. */
export interface Bytes<Header> {
  header: Header;
  bytes: ArrayBuffer;
}

const UNREACHED = new Problem(
  "The server did not answer.",
  "Is `glass serve` still running? Start it again, and open the address that it prints.",
);

/** The runs that are served, in the order of the command line. */
export async function listRuns(): Promise<Run[]> {
  return (await (await send("api/runs")).json()).runs;
}

/** The answer of a view, as JSON. */
export async function ask<Answer>(run: string, view: string, question: object, signal?: AbortSignal): Promise<Answer> {
  return (await post(run, view, question, signal)).json();
}

/** The answer of a view, as bytes after a JSON header, whose length is the first four bytes (little-endian). */
export async function askBytes<Header>(
  run: string,
  view: string,
  question: object,
  signal?: AbortSignal,
): Promise<Bytes<Header>> {
  const whole = await (await post(run, view, question, signal)).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length))) as Header;
  return { header, bytes: whole.slice(4 + length) };
}

/** The events of a POST request that is answered with a stream (text/event-stream), one at a time. */
export async function* events<Event>(path: string, body: object, signal: AbortSignal): AsyncGenerator<Event> {
  const reply = await send(path, { ...asJson(body), signal });
  if (reply.body === null) return;
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const blocks = (waiting + part.value).replaceAll("\r\n", "\n").split("\n\n");
    waiting = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = block
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n");
      if (data === "[DONE]") return;
      if (data !== "") yield JSON.parse(data) as Event;
    }
  }
}

function post(run: string, view: string, question: object, signal?: AbortSignal): Promise<Response> {
  return send(`api/runs/${encodeURIComponent(run)}/${view}`, { ...asJson(question), signal });
}

function asJson(body: object): RequestInit {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

async function send(path: string, init?: RequestInit): Promise<Response> {
  let reply: Response;
  try {
    reply = await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw UNREACHED;
  }
  if (!reply.ok) throw await problemOf(reply);
  return reply;
}

async function problemOf(reply: Response): Promise<Problem> {
  try {
    const { error } = await reply.json();
    return new Problem(error.what, error.remedy, reply.status);
  } catch {
    return new Problem(
      `The server answered with ${reply.status} ${reply.statusText}.`,
      "Open the address that `glass serve` printed, with its token.",
      reply.status,
    );
  }
}
