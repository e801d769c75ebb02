/** Answer of the view `beams`; see `app/server/views/beams.py`. */
import { type Hypothesis, type Look, penalty, type Rule, search } from "../beams";
import type { Shared } from "../shared";
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

export function beams(shared: Shared, question: Partial<Rule> & { text: string }): object {
  const rule = { beams: question.beams ?? 3, tokens: question.tokens ?? 8, length_penalty: question.length_penalty ?? 0.6 };
  const looks: Look[] = [];
  const found = search(shared, question.text, rule, rule.beams, (look) => looks.push(look));
  const start = shared.writesForSource ? ", start=model.tokenizer.target_start" : "";
  return {
    nodes: tree(shared, looks, found, rule.length_penalty),
    found: found.map((each) => ({
      text: textOf(shared, question.text, each.tokens), tokens: each.tokens.length, log_probability: each.logProbability,
      score: each.score, ended: each.ended,
    })),
    python: script(
      shared,
      ["from glassformer.base.config import SampleConfig", "from glassformer.generation.beam import beam_search"],
      [
        `settings = SampleConfig(beams=${rule.beams}, tokens=${rule.tokens}, length_penalty=${rule.length_penalty})`,
        `ids, end = model.prompt_ids(${quoted(question.text)}), model.tokenizer.end_id`,
        `for each in beam_search(model.model, [ids], settings, end${start})[0]:`,
        "    print(each.score, each.log_probability, repr(model.tokenizer.decode(each.tokens)))",
      ],
    ),
  };
}

/** The generated text, in complete characters. */
export function textOf(shared: Shared, prompt: string, tokens: readonly number[]): string {
  const decoded = shared.tokenizer.stream();
  if (shared.continues) shared.read(prompt).forEach((id) => decoded(id));
  return tokens.map((id) => decoded(id)).join("");
}

/** All hypotheses that the search considered. Parents precede their children; the first node is the root. */
function tree(shared: Shared, looks: readonly Look[], found: readonly Hypothesis[], alpha: number): Node[] {
  const nodes: Node[] = [{ parent: null, token: null, text: "", tokens: 0, log_probability: 0, score: 0, fate: "ran on", rank: null }];
  const places = new Map([["", 0]]);
  for (const { before, children, after } of looks) {
    const runs = new Set(after.map(String));
    for (const { parent, token, logProbability } of children) {
      const tokens = [...before[parent]!, token];
      places.set(String(tokens), nodes.length);
      nodes.push({
        parent: places.get(String(before[parent]))!, token, text: shared.tokenizer.text(token), tokens: tokens.length,
        log_probability: logProbability, score: logProbability / penalty(tokens.length, alpha),
        fate: runs.has(String(tokens)) ? "ran on" : "dropped", rank: null,
      });
    }
  }
  found.forEach(({ tokens, ended }, rank) => {
    const node = nodes[places.get(String(tokens))!]!;
    node.rank = rank;
    node.fate = ended === "end" ? "ended" : "ran on";
  });
  return nodes;
}
