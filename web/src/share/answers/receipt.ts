/** Answer of the view `receipt`; see `app/server/views/receipt.py`. */
import { GlassError } from "../../lib/api";
import type { SharedFile } from "../shared-file";
import { largest, logSumExp, rowOf } from "../tensors";
import type { Tokenizer } from "../tokenizer";
import { labelsOf, type TextQuestion } from "./attention-layers";
import { nameOf, outputsOf } from "./lens";
import { arguments_, script } from "./python";
import { nameOfPart, type Part, splitLogit } from "./split";

const CANDIDATES = 12;

interface Question extends TextQuestion {
  place?: number | null;
  token?: string | null;
  against?: string | null;
  part?: number | null;
}

export function receipt(shared: SharedFile, question: Question): object {
  refuseInexact(shared);
  const subject = shared.subject(question.text, question.target ?? null);
  const token = tokenOrLabelId(shared, question.token);
  const against = tokenOrLabelId(shared, question.against);
  const outputs = outputsOf(shared, subject, question.target != null, token).filter((output) => isAnswered(shared, output.position, subject.ids));
  const output = question.place == null ? outputs.at(-1) : outputs.find((each) => each.position === question.place);
  if (outputs.length === 0) throw new GlassError("There is no [MASK] in the text.", "Write [MASK] where a token is missing.");
  if (output === undefined) {
    const positions = outputs.map((each) => each.position).join(", ");
    throw new GlassError(`There is no answer at position ${question.place}.`, `Choose one of: ${positions}.`);
  }
  const parts = splitLogit(shared, subject, output.readPositions, output.answer, against);
  const logits = rowOf(subject.pass.logits, output.position);
  const logit = logits[output.answer]! - (against === null ? 0 : logits[against]!);
  const sum = parts.reduce((total, part) => total + part.value, 0);
  const name = nameOf(shared);
  const chosen = question.part == null ? null : (parts[question.part] ?? null);
  const all = logSumExp(logits);
  const condition = question.place == null ? "" : ` if each.place == ${question.place}`;
  const more = [token === null ? "" : `, ${token}`, question.target != null && shared.isEncoderDecoder ? ", end=model.tokenizer.end_id" : ""];
  return {
    ...labelsOf(shared, subject), pass: "browser", places: outputs.map((each) => each.position), place: output.position, reads: output.readPositions,
    token: { id: output.answer, text: name(output.answer), known: output.known },
    against: against === null ? null : { id: against, text: name(against) },
    candidates: largest(logits, CANDIDATES).map((id) => ({ id, text: name(id), probability: Math.exp(logits[id]! - all), logit: logits[id] })),
    parts: parts.map((part) => ({
      name: nameOfPart(part), kind: part.kind, layer: part.layer, head: part.head, value: part.value, split: part.sources !== null,
    })),
    sum, logit, residual: sum - logit, part: question.part ?? null, cross: chosen?.kind === "cross head",
    sources: chosen?.sources ? [...chosen.sources] : null, own: byToken(parts, false), memory: byToken(parts, true),
    python: script(
      shared,
      [
        "from glassformer.inspection.attribution import case_of, split_output, split_outputs",
        "from glassformer.inspection.explain import unshortened_subject_of",
      ],
      [
        `subject = unshortened_subject_of(model, ${arguments_(question)})`,
        `case = case_of(subject${more.join("")})`,
        `output = [each for each in case.outputs${condition}][-1]`,
        `parts = split_output(case.model, case.trace(), output, ${against ?? "None"})`,
        "for part in parts:",
        "    print(part.name, part.value)",
        "print(sum(part.value for part in parts))",
        `print(float(split_outputs(case.model, case.trace(), [output], ${against ?? "None"}).logits[0]))`,
      ],
    ),
  };
}

/** A masked model answers only at its masks. */
function isAnswered(shared: SharedFile, position: number, ids: readonly number[]): boolean {
  return shared.run.task !== "masked" || ids[position] === shared.tokenizer.roles.mask;
}

/** Total contribution of each token of the row or of the source, over all parts that read tokens. */
function byToken(parts: readonly Part[], cross: boolean): number[] | null {
  const rows = parts.filter((part) => part.sources !== null && (part.kind === "cross head") === cross);
  if (rows.length === 0) return null;
  return Array.from(rows[0]!.sources!, (_, at) => rows.reduce((sum, part) => sum + part.sources![at]!, 0));
}

function refuseInexact({ model: { settings } }: SharedFile): void {
  if (settings.norm_order === "post") {
    throw new GlassError(
      "This model's blocks each end with a norm (model.norm_order = post), so a logit has no exact split into parts.",
      "Share a run with model.norm_order = pre or output.",
    );
  }
  if (settings.head_transform) {
    throw new GlassError(
      "This model has an activation before the output layer (model.head_transform = true), so a logit has no exact split into parts.",
      "Share a run with model.head_transform = false.",
    );
  }
}

/** The id of a token or label, given by an id, a text or a text in "quotes"; null for null. */
function tokenOrLabelId(shared: SharedFile, name: string | null | undefined): number | null {
  if (name == null || name === "") return null;
  const { labels } = shared.run;
  if (!shared.model.settings.classifier) return tokenId(shared.tokenizer, name);
  const at = labels.includes(name) ? labels.indexOf(name) : Number(name);
  if (Number.isInteger(at) && at >= 0 && at < labels.length) return at;
  throw new GlassError(`There is no label ${name}.`, `Choose one of ${labels.join(", ")}.`);
}

function tokenId(tokenizer: Tokenizer, name: string): number {
  if (/^\d+$/.test(name)) {
    if (Number(name) < tokenizer.size) return Number(name);
    throw new GlassError(`Token ${name} is outside the vocabulary.`, `Give an id from 0 to ${tokenizer.size - 1}.`);
  }
  const text = /^".+"$/s.test(name) ? name.slice(1, -1) : name;
  const special = [...tokenizer.special].find((id) => tokenizer.text(id) === text);
  if (special !== undefined) return special;
  const ids = tokenizer.encode(text);
  if (ids.length === 1 && ids[0] !== tokenizer.roles.unknown) return ids[0]!;
  const many = ids.length > 1 ? `is ${ids.length} tokens, not one` : "is not in the vocabulary";
  throw new GlassError(`${text} ${many}.`, "Give the text or the id of one token.");
}
