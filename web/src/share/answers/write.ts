/** Answer of the view `write`; see `app/server/views/write.py`. */
import { GlassError } from "../../lib/api";
import { search } from "../beams";
import { CachedDecoder } from "../cached-decoder";
import { MASK, type SampleConfig, type SharedFile } from "../shared-file";
import { largest, rowOf, softmax } from "../tensors";
import { textOf } from "./beams";
import { quoted, script } from "./python";
import { argmax, race, randomNumbers, samplingDistribution } from "./sampling-filters";

export interface WriteQuestion extends Partial<SampleConfig> {
  text: string;
  beams?: number;
  top?: number;
  written?: string | null;
}

type EndReason = "end" | "stop" | "length";
/** An event: some complete characters, or the end of the text. */
export type GenerationEvent = { text: string } | { ended: EndReason; tokens: number; score: number | null };

export async function write(shared: SharedFile, question: WriteQuestion): Promise<object> {
  const { task } = shared.run;
  if (task === "classify") return classify(shared, question.text);
  if (task === "masked") return fillMasks(shared, question.text, question.top ?? 8);
  let text = question.written ?? "";
  let tokens: number | null = null;
  let ended: EndReason | null = null;
  let score: number | null = null;
  if (question.written == null) {
    for await (const event of generationEvents(shared, question)) {
      if ("text" in event) text += event.text;
      else {
        tokens = event.tokens;
        ended = event.ended;
        score = event.score;
      }
    }
  }
  const copied = { why: "a shared file does not contain the training text of the run", least: 12, read: 0, whole: false, matches: [], cover: [] };
  const settings = settingsOf(shared, question);
  const given = (["tokens", "beams", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"] as const).map((name) => `${name}=${settings[name] ?? "None"}`);
  return {
    kind: "text", text, tokens, ended, score, copied,
    python: script(shared, [], [
      "# Greedy text (temperature=0) is the same on the page; sampled text differs, because the page uses other random numbers.",
      `settings = model.config.sample.replace(${given.join(", ")})`,
      `(sample,) = model.generate([${quoted(question.text)}], settings)`,
      "print(repr(sample.text))",
    ]),
  };
}

/** Generate text; yield its events. */
export async function* generationEvents(shared: SharedFile, question: WriteQuestion, signal?: AbortSignal): AsyncGenerator<GenerationEvent> {
  const { model, tokenizer } = shared;
  const settings = settingsOf(shared, question);
  if (settings.beams > 1) {
    yield* beamSearchEvents(shared, question.text, settings);
    return;
  }
  const source = shared.isEncoderDecoder ? shared.encodeTruncated(question.text) : null;
  const row = source === null ? shared.encode(question.text) : [...tokenizer.roles.target_start];
  const startLength = row.length;
  const decoder = CachedDecoder.forSource(model, source);
  const random = randomNumbers(settings.seed);
  const most = source === null ? settings.tokens : Math.min(settings.tokens, model.settings.context - startLength + 1);
  const text = new StopFilter(settings.stop);
  const decodeNext = tokenizer.stream();
  if (shared.continuesText) row.forEach(decodeNext); // the text continues the prompt, so its first word may begin with a space
  let ended: EndReason = "length";
  let count = 0;
  let pause = 0;
  while (count < most) {
    const logits = decoder.nextLogits(row);
    const probabilities = samplingDistribution(logits, settings, source === null ? row : row.slice(startLength));
    const token = settings.temperature === 0 ? argmax(probabilities) : race(probabilities, random)[0]!.id;
    row.push(token);
    count += 1;
    if (token === tokenizer.roles.end) {
      ended = "end";
      break;
    }
    const piece = text.feed(decodeNext(token));
    if (piece !== "") yield { text: piece };
    if (text.found) {
      ended = "stop";
      break;
    }
    if (performance.now() - pause > 30) {
      await new Promise((go) => setTimeout(go)); // let the page be drawn, and let it stop the generation
      pause = performance.now();
      if (signal?.aborted) return;
    }
  }
  const rest = text.finish();
  if (rest !== "") yield { text: rest };
  yield { ended, tokens: count, score: null };
}

function settingsOf(shared: SharedFile, question: WriteQuestion): SampleConfig {
  const given = Object.fromEntries(Object.entries(question).filter(([, value]) => value !== undefined));
  return { ...shared.header.sample, beams: 1, ...given };
}

/** The best text of beam search, as one event. */
async function* beamSearchEvents(shared: SharedFile, text: string, settings: SampleConfig): AsyncGenerator<GenerationEvent> {
  await new Promise((go) => setTimeout(go, 20)); // let the page show first that work has started
  const found = search(shared, text, settings, 1)[0]!;
  const filter = new StopFilter(settings.stop);
  const written = filter.feed(textOf(shared, text, found.tokens));
  const ended = filter.found ? "stop" : found.ended;
  yield { text: written + filter.finish() };
  yield { ended, tokens: found.tokens.length, score: found.score };
}

/** Passes text on up to the first stop string, and holds back a possible beginning of a stop string. */
class StopFilter {
  #buffer = "";
  found = false;

  constructor(readonly stops: readonly string[]) {}

  feed(text: string): string {
    this.#buffer += text;
    const matches = this.stops.map((stop) => ({ at: this.#buffer.indexOf(stop), stop })).filter(({ at }) => at >= 0);
    const first = matches.sort((a, b) => a.at + a.stop.length - b.at - b.stop.length || a.at - b.at)[0];
    if (first !== undefined) {
      this.found = true;
      return this.#release(first.at, true);
    }
    const longest = Math.max(0, ...this.stops.map((stop) => stop.length - 1));
    for (let size = Math.min(longest, this.#buffer.length); size > 0; size -= 1) {
      const end = this.#buffer.slice(-size);
      if (this.stops.some((stop) => stop.startsWith(end))) return this.#release(this.#buffer.length - size, false);
    }
    return this.finish();
  }

  finish(): string {
    return this.#release(this.#buffer.length, true);
  }

  #release(upTo: number, forget: boolean): string {
    const taken = this.#buffer.slice(0, upTo);
    this.#buffer = forget ? "" : this.#buffer.slice(upTo);
    return taken;
  }
}

function classify(shared: SharedFile, text: string): object {
  const probabilities = softmax(shared.model.pass(shared.encodeTruncated(text)).logits.data.slice());
  const labels = largest(probabilities, probabilities.length).map((at) => ({ name: shared.run.labels[at], probability: probabilities[at] }));
  const python = script(shared, [], [
    `(found,) = model.classify([${quoted(text)}])`, "for name, probability in found.probabilities.items():", "    print(probability, name)",
  ]);
  return { kind: "label", labels, python };
}

function fillMasks(shared: SharedFile, text: string, top: number): object {
  const { tokenizer } = shared;
  if (!text.includes(MASK)) throw new GlassError(`There is no ${MASK} in the text.`, `Write ${MASK} where a token is missing.`);
  const { ids, pass } = shared.subject(text, null);
  const positions = ids.flatMap((id, position) => (id === tokenizer.roles.mask ? [position] : []));
  const holes = positions.map((position) => {
    const probabilities = softmax(rowOf(pass.logits, position).map((value, id) => (tokenizer.special.has(id) ? -Infinity : value)));
    return largest(probabilities, top).map((id) => ({ id, text: tokenizer.decode([id]), probability: probabilities[id]! }));
  });
  const parts = text.split(MASK);
  const last = parts.pop()!;
  const whole = parts.map((part, at) => {
    const best = holes[at]![0]!.text;
    return (best.startsWith(" ") && part.endsWith(" ") ? part.slice(0, -1) : part) + best;
  });
  const python = script(shared, [], [
    `for hole in model.fill(${quoted(text)}, ${top}):`, "    for each in hole:", "        print(each.probability, each.token, repr(each.text))",
  ]);
  return { kind: "holes", filled: whole.join("") + last, holes, python };
}
