/** Answer of the view `write`; see `app/server/views/write.py`. */
import { Problem } from "../../lib/api";
import { MASK, type Sampling, type Shared } from "../shared";
import { search } from "../beams";
import { Reader } from "../reader";
import { largest, rowOf, softmax } from "../tensors";
import { textOf } from "./beams";
import { argmax, probabilities, race, randomNumbers } from "./drawing";
import { quoted, script } from "./python";

export interface WriteQuestion extends Partial<Sampling> {
  text: string;
  beams?: number;
  top?: number;
  written?: string | null;
}

type Ended = "end" | "stop" | "length";
/** An event: some complete characters, or the end of the text. */
export type Piece = { text: string } | { ended: Ended; tokens: number; score: number | null };

export async function write(shared: Shared, question: WriteQuestion): Promise<object> {
  const { task } = shared.run;
  if (task === "classify") return classified(shared, question.text);
  if (task === "masked") return filled(shared, question.text, question.top ?? 8);
  let text = question.written ?? "";
  let tokens: number | null = null;
  let ended: Ended | null = null;
  let score: number | null = null;
  if (question.written == null) {
    for await (const piece of writing(shared, question)) {
      if ("text" in piece) text += piece.text;
      else {
        tokens = piece.tokens;
        ended = piece.ended;
        score = piece.score;
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
export async function* writing(shared: Shared, question: WriteQuestion, signal?: AbortSignal): AsyncGenerator<Piece> {
  const { model, tokenizer } = shared;
  const settings = settingsOf(shared, question);
  if (settings.beams > 1) {
    yield* searched(shared, question.text, settings);
    return;
  }
  const source = shared.writesForSource ? shared.cut(question.text) : null;
  const row = source === null ? shared.read(question.text) : [...tokenizer.roles.target_start];
  const begun = row.length;
  const reader = Reader.after(model, source);
  const random = randomNumbers(settings.seed);
  const most = source === null ? settings.tokens : Math.min(settings.tokens, model.settings.context - begun + 1);
  const text = new StopFilter(settings.stop);
  const decoded = tokenizer.stream();
  if (shared.continues) row.forEach(decoded); // the text continues the prompt, so its first word may begin with a space
  let ended: Ended = "length";
  let count = 0;
  let pause = 0;
  while (count < most) {
    const logits = reader.read(row);
    const shares = probabilities(logits, settings, source === null ? row : row.slice(begun));
    const token = settings.temperature === 0 ? argmax(shares) : race(shares, random)[0]!.id;
    row.push(token);
    count += 1;
    if (token === tokenizer.roles.end) {
      ended = "end";
      break;
    }
    const piece = text.feed(decoded(token));
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

function settingsOf(shared: Shared, question: WriteQuestion): Sampling {
  const asked = Object.fromEntries(Object.entries(question).filter(([, value]) => value !== undefined));
  return { ...shared.header.sample, beams: 1, ...asked };
}

/** The best text of beam search, as one event. */
async function* searched(shared: Shared, text: string, settings: Sampling): AsyncGenerator<Piece> {
  await new Promise((go) => setTimeout(go, 20)); // let the page show first that work has started
  const found = search(shared, text, settings, 1)[0]!;
  const filter = new StopFilter(settings.stop);
  const written = filter.feed(textOf(shared, text, found.tokens));
  const ended = filter.found ? "stop" : found.ended;
  yield { text: written + filter.finish() };
  yield { ended, tokens: found.tokens.length, score: found.score };
}

/** Passes text on up to the first stop text, and holds back a possible beginning of a stop text. */
class StopFilter {
  #held = "";
  found = false;

  constructor(readonly stops: readonly string[]) {}

  feed(text: string): string {
    this.#held += text;
    const places = this.stops.map((stop) => ({ at: this.#held.indexOf(stop), stop })).filter(({ at }) => at >= 0);
    const first = places.sort((a, b) => a.at + a.stop.length - b.at - b.stop.length || a.at - b.at)[0];
    if (first !== undefined) {
      this.found = true;
      return this.#take(first.at, true);
    }
    const longest = Math.max(0, ...this.stops.map((stop) => stop.length - 1));
    for (let size = Math.min(longest, this.#held.length); size > 0; size -= 1) {
      const end = this.#held.slice(-size);
      if (this.stops.some((stop) => stop.startsWith(end))) return this.#take(this.#held.length - size, false);
    }
    return this.finish();
  }

  finish(): string {
    return this.#take(this.#held.length, true);
  }

  #take(upTo: number, forget: boolean): string {
    const taken = this.#held.slice(0, upTo);
    this.#held = forget ? "" : this.#held.slice(upTo);
    return taken;
  }
}

function classified(shared: Shared, text: string): object {
  const shares = softmax(shared.model.pass(shared.cut(text)).logits.data.slice());
  const labels = largest(shares, shares.length).map((at) => ({ name: shared.run.labels[at], probability: shares[at] }));
  const python = script(shared, [], [
    `(found,) = model.classify([${quoted(text)}])`, "for name, probability in found.probabilities.items():", "    print(probability, name)",
  ]);
  return { kind: "label", labels, python };
}

function filled(shared: Shared, text: string, top: number): object {
  const { tokenizer } = shared;
  if (!text.includes(MASK)) throw new Problem(`There is no ${MASK} in the text.`, `Write ${MASK} where a token is missing.`);
  const { ids, pass } = shared.subject(text, null);
  const places = ids.flatMap((id, place) => (id === tokenizer.roles.mask ? [place] : []));
  const holes = places.map((place) => {
    const shares = softmax(rowOf(pass.logits, place).map((value, id) => (tokenizer.special.has(id) ? -Infinity : value)));
    return largest(shares, top).map((id) => ({ id, text: tokenizer.decode([id]), probability: shares[id]! }));
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
