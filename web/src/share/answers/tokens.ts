/** Answer of the view `tokens` (see `app/server/views/tokens.py`), without counts, which need the training text. */
import { MASK, type SharedFile, textsAroundMasks } from "../shared-file";
import type { Tokenizer } from "../tokenizer";
import { quoted, script } from "./python";

export function tokens(shared: SharedFile, { text, target }: { text: string; target: string | null }): object {
  const { tokenizer, sourceTokenizer, run } = shared;
  if (!shared.isEncoderDecoder) {
    const whole = run.task === "masked" && text.includes(MASK) ? textsAroundMasks(text, tokenizer.kind).join("") : text;
    const python = script(shared, [], [`print(model.tokenizer.encode(${quoted(whole)}))`]);
    return { ...tokenizerFacts(shared), sides: [side("text", text, whole, tokenizer, shared.encode(text))], python };
  }
  const subject = target == null ? shared.subject(text, null) : null;
  const targetText = target ?? subject?.target ?? "";
  const written = subject?.ids ?? [...tokenizer.roles.target_start, ...tokenizer.encode(targetText)];
  return {
    ...tokenizerFacts(shared),
    sides: [
      side("source", text, text, sourceTokenizer, shared.encode(text)),
      side("target", targetText, targetText, tokenizer, written),
    ],
    python: script(shared, [], [
      `print(model.source_tokenizer.encode(${quoted(text)}))`, `print(model.tokenizer.encode(${quoted(targetText)}))`,
    ]),
  };
}

function tokenizerFacts({ tokenizer, model }: SharedFile): object {
  return {
    kind: tokenizer.kind, description: tokenizer.json.description, vocabulary: tokenizer.size, exact: tokenizer.json.exact,
    context: model.settings.context, counts: "absent", why: "a shared file does not contain the training text of the run",
  };
}

function side(name: string, text: string, whole: string, tokenizer: Tokenizer, ids: number[]): object {
  const decoded = tokenizer.decode(ids);
  return {
    name, text, decoded, round_trip: decoded === whole, unread: 0, unknown: [], vocabulary: tokenizer.size, counted: null,
    tokens: ids.map((id) => ({
      id, text: tokenizer.text(id), bytes: [...tokenizer.bytes(id)], special: tokenizer.special.has(id), count: null,
      log_frequency: null,
    })),
  };
}
