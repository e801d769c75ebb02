/** Answer of the view `beams`; see `app/server/views/beams.py`. */
import { type BeamSettings, type Hypothesis, penalty, search, type SearchStep } from "../beams";
import type { SharedFile } from "../shared-file";
import { quoted, script } from "./python";

interface Node {
  parent: number | null;
  token: number | null;
  text: string;
  tokens: number;
  log_probability: number;
  score: number;
  fate: "ran on" | "ended" | "dropped";
  rank: number | null;
}

export function beams(shared: SharedFile, question: Partial<BeamSettings> & { text: string }): object {
  const settings = { beams: question.beams ?? 3, tokens: question.tokens ?? 8, length_penalty: question.length_penalty ?? 0.6 };
  const steps: SearchStep[] = [];
  const found = search(shared, question.text, settings, settings.beams, (step) => steps.push(step));
  const start = shared.isEncoderDecoder ? ", start=model.tokenizer.target_start" : "";
  return {
    nodes: tree(shared, steps, found, settings.length_penalty),
    found: found.map((each) => ({
      text: textOf(shared, question.text, each.tokens), tokens: each.tokens.length, log_probability: each.logProbability,
      score: each.score, ended: each.ended,
    })),
    python: script(
      shared,
      ["from glassformer.base.config import SampleConfig", "from glassformer.generation.beam import beam_search"],
      [
        `settings = SampleConfig(beams=${settings.beams}, tokens=${settings.tokens}, length_penalty=${settings.length_penalty})`,
        `ids, end = model.prompt_ids(${quoted(question.text)}), model.tokenizer.end_id`,
        `for each in beam_search(model.model, [ids], settings, end${start})[0]:`,
        "    print(each.score, each.log_probability, repr(model.tokenizer.decode(each.tokens)))",
      ],
    ),
  };
}

/** The generated text, in complete characters. */
export function textOf(shared: SharedFile, prompt: string, tokens: readonly number[]): string {
  const decodeNext = shared.tokenizer.stream();
  if (shared.continuesText) shared.encode(prompt).forEach((id) => decodeNext(id));
  return tokens.map((id) => decodeNext(id)).join("");
}

/** All hypotheses that the search considered. Parents precede their children; the first node is the root. */
function tree(shared: SharedFile, steps: readonly SearchStep[], found: readonly Hypothesis[], alpha: number): Node[] {
  const nodes: Node[] = [{ parent: null, token: null, text: "", tokens: 0, log_probability: 0, score: 0, fate: "ran on", rank: null }];
  const indices = new Map([["", 0]]);
  for (const { before, candidates, after } of steps) {
    const continued = new Set(after.map(String));
    for (const { parent, token, logProbability } of candidates) {
      const tokens = [...before[parent]!, token];
      indices.set(String(tokens), nodes.length);
      nodes.push({
        parent: indices.get(String(before[parent]))!, token, text: shared.tokenizer.text(token), tokens: tokens.length,
        log_probability: logProbability, score: logProbability / penalty(tokens.length, alpha),
        fate: continued.has(String(tokens)) ? "ran on" : "dropped", rank: null,
      });
    }
  }
  found.forEach(({ tokens, ended }, rank) => {
    const node = nodes[indices.get(String(tokens))!]!;
    node.rank = rank;
    node.fate = ended === "end" ? "ended" : "ran on";
  });
  return nodes;
}
