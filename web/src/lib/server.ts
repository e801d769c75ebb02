/** Source of the answers that sends requests to the `glass serve` that served the page. */
import { CONNECTION_LOST, GlassError, type Run, type Source } from "./api";

const NO_ANSWER = new GlassError(
  "The server did not answer.",
  "If glass serve has stopped, start it again and open the address that it prints.",
);

export const SERVER: Source = {
  listRuns: async () => (await (await send("api/runs")).json()).runs as Run[],
  ask: async (run, view, question, signal) => (await post(run, view, question, signal)).json(),
  askBytes: async (run, view, question, signal) => (await post(run, view, question, signal)).arrayBuffer(),
  events: stream,
};

/** The events of text/event-stream, one at a time. */
async function* stream(path: string, body: object, signal: AbortSignal): AsyncGenerator<unknown> {
  const reply = await send(path, { ...asJson(body), signal });
  if (reply.body === null) return;
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (let part = await next(reader); !part.done; part = await next(reader)) {
    const blocks = (waiting + part.value).replaceAll("\r\n", "\n").split("\n\n");
    waiting = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = block
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n");
      if (data === "[DONE]") return;
      if (data !== "") yield JSON.parse(data);
    }
  }
}

async function next(reader: ReadableStreamDefaultReader<string>): Promise<ReadableStreamReadResult<string>> {
  try {
    return await reader.read();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw CONNECTION_LOST;
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
    throw NO_ANSWER;
  }
  if (!reply.ok) throw await errorOf(reply);
  return reply;
}

async function errorOf(reply: Response): Promise<GlassError> {
  try {
    const { error } = await reply.json();
    return new GlassError(error.what, error.remedy, reply.status);
  } catch {
    return new GlassError(
      `The server answered with ${reply.status} ${reply.statusText}.`,
      "Open the address that glass serve printed, with its token.",
      reply.status,
    );
  }
}
