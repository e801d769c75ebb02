/** Answer of the view `sampling`; see `app/server/views/sampling.py`. */
import { Problem } from "../../lib/api";
import { Reader } from "../reader";
import type { Shared } from "../shared";
import { largest } from "../tensors";
import { argmax, type Drawing, race, randomNumbers, type Stage, stages } from "./drawing";
import type { TextQuestion } from "./looked";
import { quoted, script } from "./python";

/** Maximum number of ranks in `curve`. */
const RANKS = 160;
/** Number of tokens in `race`. */
const RUNNERS = 12;
/** Number of tokens of the text in `after`. */
const LAST = 12;

type Question = TextQuestion & Partial<Drawing> & { seed?: number; top?: number };

export function sampling(shared: Shared, question: Question): object {
  const { tokenizer, run } = shared;
  if (run.task === "classify" || run.task === "masked") {
    throw new Problem(`${run.name} was trained with train.task = ${run.task}: it does not sample tokens.`, "Choose another view.");
  }
  const { temperature = 1, top_k = null, top_p = null, min_p = null, repetition_penalty = 1, seed = 0, top = 20 } = question;
  const written = tokenizer.encode(question.target ?? "");
  const source = shared.writesForSource ? shared.cut(question.text) : null;
  const read = source === null ? shared.read(question.text) : [...tokenizer.roles.target_start, ...written];
  const logits = Reader.after(shared.model, source).read(read);
  const step = source === null ? 1 : written.length + 1;
  const found = stages(logits, { temperature, top_k, top_p, min_p, repetition_penalty }, source === null ? read : written);
  const first = found[0]!.shares;
  const last = found.at(-1)!.shares;
  const runners = temperature === 0 ? [] : race(last, numbersOf(seed, step, last.length));
  const token = runners[0]?.id ?? argmax(last);
  const ran = new Map(runners.map((runner) => [runner.id, runner]));
  const listed = [...new Set([...largest(last, top), ...largest(first, top)])].sort((a, b) => first[b]! - first[a]! || a - b);
  return {
    vocabulary: logits.length, after: tokenizer.decode(read.slice(-LAST)), step,
    stages: found.map((stage, at) => facts(stage, found[at - 1] ?? null)),
    tokens: listed.map((id) => ({
      id, text: tokenizer.text(id), shares: found.map((stage) => stage.shares[id]), number: ran.get(id)?.number ?? null,
      arrival: ran.get(id)?.arrival ?? null,
    })),
    curve: curve(first, last),
    draw: {
      how: temperature === 0 ? "likeliest" : "drawn", token, text: tokenizer.text(token), seed, step,
      race: runners.slice(0, RUNNERS).map((runner) => ({ ...runner, text: tokenizer.text(runner.id) })),
    },
    python: script(
      shared,
      [
        "from glassformer.base.config import SampleConfig", "from glassformer.evaluation.token_losses import next_logits",
        "from glassformer.inspection.receipt.draw import explain_draw",
      ],
      [
        `after = next_logits(model, ${quoted(question.text)}, ${question.target == null ? "None" : quoted(question.target)})`,
        `settings = SampleConfig(temperature=${temperature}, top_k=${top_k ?? "None"}, top_p=${top_p ?? "None"},`,
        `    min_p=${min_p ?? "None"}, repetition_penalty=${repetition_penalty}, seed=${seed})`,
        "found = explain_draw(after.logits, settings, after.previous, after.step)",
        "for stage in found.stages:  # the same as on the page, which samples with other random numbers",
        "    print(stage.filter, float(stage.shares.sum()), stage.left, float(stage.shares.max()))",
      ],
    ),
  };
}

/** The random numbers of a step: each earlier token has used V numbers. */
function numbersOf(seed: number, step: number, V: number): () => number {
  const random = randomNumbers(seed);
  for (let used = 0; used < (step - 1) * V; used += 1) random();
  return random;
}

function facts({ filter, setting, shares }: Stage, before: Stage | null): object {
  let sum = 0;
  let left = 0;
  let cut = 0;
  let cutShare = 0;
  let entropy = 0;
  let most = 0;
  shares.forEach((share, id) => {
    const earlier = before?.shares[id] ?? 0;
    if (share > 0) {
      left += 1;
      entropy -= share * Math.log(share);
    } else if (earlier > 0) {
      cut += 1;
      cutShare += earlier;
    }
    sum += share;
    most = Math.max(most, share);
  });
  return { filter, setting, sum, left, cut, cut_share: cutShare, entropy, largest: most };
}

/** Probabilities by rank; for a large vocabulary, at ranks evenly spaced on a logarithmic scale. */
function curve(first: Float64Array, last: Float64Array): object {
  const count = Math.min(first.length, RANKS);
  const even = Array.from({ length: count }, (_, at) => Math.round(first.length ** (at / Math.max(1, count - 1))));
  const ranks = [...new Set(even)];
  const ordered = [first, last].map((shares) => shares.slice().sort().reverse());
  const held = ordered.map((shares) => {
    let sum = 0;
    return shares.map((share) => (sum += share));
  });
  const at = (values: Float64Array) => ranks.map((rank) => values[rank - 1]);
  return { ranks, shares: ordered.map(at), held: held.map(at) };
}
