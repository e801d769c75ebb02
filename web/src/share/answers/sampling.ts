/** Answer of the view `sampling`; see `app/server/views/sampling.py`. */
import { GlassError } from "../../lib/api";
import { CachedDecoder } from "../cached-decoder";
import type { SharedFile } from "../shared-file";
import { largest } from "../tensors";
import type { TextQuestion } from "./attention-layers";
import { quoted, script } from "./python";
import { argmax, race, randomNumbers, type SamplingFilters, type Stage, stages } from "./sampling-filters";

/** Maximum number of ranks in `curve`. */
const RANKS = 160;
/** Number of tokens in `race`. */
const MAX_RACE_ENTRIES = 12;
/** Number of tokens of the text in `after`. */
const LAST = 12;

type Question = TextQuestion & Partial<SamplingFilters> & { seed?: number; top?: number };

export function sampling(shared: SharedFile, question: Question): object {
  const { tokenizer, run } = shared;
  if (run.task === "classify" || run.task === "masked") {
    throw new GlassError(`${run.name} was trained with train.task = ${run.task}: it does not sample tokens.`, "Choose another view.");
  }
  const { temperature = 1, top_k = null, top_p = null, min_p = null, repetition_penalty = 1, seed = 0, top = 20 } = question;
  const written = tokenizer.encode(question.target ?? "");
  const source = shared.isEncoderDecoder ? shared.encodeTruncated(question.text) : null;
  const ids = source === null ? shared.encode(question.text) : [...tokenizer.roles.target_start, ...written];
  const logits = CachedDecoder.forSource(shared.model, source).nextLogits(ids);
  const step = source === null ? 1 : written.length + 1;
  const found = stages(logits, { temperature, top_k, top_p, min_p, repetition_penalty }, source === null ? ids : written);
  const first = found[0]!.probabilities;
  const last = found.at(-1)!.probabilities;
  const entries = temperature === 0 ? [] : race(last, stepRandomNumbers(seed, step, last.length));
  const token = entries[0]?.id ?? argmax(last);
  const entryOf = new Map(entries.map((entry) => [entry.id, entry]));
  const listed = [...new Set([...largest(last, top), ...largest(first, top)])].sort((a, b) => first[b]! - first[a]! || a - b);
  return {
    vocabulary: logits.length, after: tokenizer.decode(ids.slice(-LAST)), step,
    stages: found.map((stage, at) => stageStatistics(stage, found[at - 1] ?? null)),
    tokens: listed.map((id) => ({
      id, text: tokenizer.text(id), shares: found.map((stage) => stage.probabilities[id]), number: entryOf.get(id)?.number ?? null,
      arrival: entryOf.get(id)?.arrival ?? null,
    })),
    curve: curve(first, last),
    draw: {
      how: temperature === 0 ? "likeliest" : "drawn", token, text: tokenizer.text(token), seed, step,
      race: entries.slice(0, MAX_RACE_ENTRIES).map((entry) => ({ ...entry, text: tokenizer.text(entry.id) })),
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
        "    print(stage.filter, float(stage.probabilities.sum()), stage.left, float(stage.probabilities.max()))",
      ],
    ),
  };
}

/** The random numbers of a step: each earlier token has used V numbers. */
function stepRandomNumbers(seed: number, step: number, V: number): () => number {
  const random = randomNumbers(seed);
  for (let used = 0; used < (step - 1) * V; used += 1) random();
  return random;
}

function stageStatistics({ filter, setting, probabilities }: Stage, before: Stage | null): object {
  let sum = 0;
  let left = 0;
  let cut = 0;
  let cutProbability = 0;
  let entropy = 0;
  let most = 0;
  probabilities.forEach((probability, id) => {
    const earlier = before?.probabilities[id] ?? 0;
    if (probability > 0) {
      left += 1;
      entropy -= probability * Math.log(probability);
    } else if (earlier > 0) {
      cut += 1;
      cutProbability += earlier;
    }
    sum += probability;
    most = Math.max(most, probability);
  });
  return { filter, setting, sum, left, cut, cut_share: cutProbability, entropy, largest: most };
}

/** Probabilities by rank; for a large vocabulary, at ranks evenly spaced on a logarithmic scale. */
function curve(first: Float64Array, last: Float64Array): object {
  const count = Math.min(first.length, RANKS);
  const even = Array.from({ length: count }, (_, at) => Math.round(first.length ** (at / Math.max(1, count - 1))));
  const ranks = [...new Set(even)];
  const ordered = [first, last].map((probabilities) => probabilities.slice().sort().reverse());
  const cumulative = ordered.map((probabilities) => {
    let sum = 0;
    return probabilities.map((probability) => (sum += probability));
  });
  const at = (values: Float64Array) => ranks.map((rank) => values[rank - 1]);
  return { ranks, shares: ordered.map(at), held: cumulative.map(at) };
}
