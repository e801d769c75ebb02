/** Answer of the view `lens`; see `app/server/views/lens.py`. */
import { GlassError } from "../../lib/api";
import type { SharedFile, Subject } from "../shared-file";
import { largest, logSumExp, type Matrix, normed, rowOf } from "../tensors";
import { labelsOf, type TextQuestion, visibleToken } from "./attention-layers";
import { arguments_, script } from "./python";

/** Maximum number of positions in an answer. */
const WINDOW = 64;
/** Maximum number of cells in an answer. */
const CELLS = 2_500;
/** Number of candidates of a cell. */
const TOP = 3;

/** An answer at a position; `known`: whether it is the actual next token of the text. */
export interface Output {
  position: number;
  /** Positions whose vectors the output head reads. */
  readPositions: number[];
  answer: number;
  known: boolean;
}

/** The answer at each position: `answer`, else the next token of the text, else the likeliest. A classifier has one: a label. */
export function outputsOf(shared: SharedFile, subject: Subject, whole: boolean, answer: number | null = null): Output[] {
  const { ids, pass } = subject;
  const { settings } = shared.model;
  const likeliest = (row: number) => largest(candidateLogits(rowOf(pass.logits, row), shared, subject), 1)[0]!;
  if (settings.classifier) {
    const readPositions = settings.pooling === "first" ? [0] : ids.map((_, position) => position);
    return [{ position: 0, readPositions, answer: answer ?? likeliest(0), known: false }];
  }
  const end = whole && shared.isEncoderDecoder ? shared.tokenizer.roles.end : null;
  const following = settings.family === "encoder" ? [] : [...ids.slice(1), end];
  return ids.map((_, position) => {
    const next = following[position] ?? null;
    return { position, readPositions: [position], answer: answer ?? next ?? likeliest(position), known: answer === null && next !== null };
  });
}

/** Logits, with -∞ for tokens that are not candidates: the special tokens of a masked model. */
function candidateLogits(logits: Float64Array, shared: SharedFile, subject: Subject): Float64Array {
  if (shared.run.task !== "masked" || subject.source !== null) return logits;
  return logits.map((value, id) => (shared.tokenizer.special.has(id) ? -Infinity : value));
}

/** Text of a token, or name of a class. */
export function nameOf(shared: SharedFile): (id: number) => string {
  return shared.model.settings.classifier ? (id) => shared.run.labels[id]! : (id) => visibleToken(shared.tokenizer.text(id));
}

export function lens(shared: SharedFile, question: TextQuestion & { first?: number }): object {
  const { model } = shared;
  if (model.settings.norm_order === "post") {
    throw new GlassError(
      "This model's blocks each end with a norm (model.norm_order = post), so the output layer cannot decode earlier layers.",
      "Share a run with model.norm_order = pre or output.",
    );
  }
  const subject = shared.subject(question.text, question.target ?? null);
  const outputs = outputsOf(shared, subject, question.target != null);
  const name = nameOf(shared);
  const rows = subject.pass.stack.streams.map((stream) => logitsOf(shared, stream).map((cell, at) => cellOf(cell, outputs[at]!)));
  const known = outputs.map((output, at) => (output.known ? at : -1)).filter((at) => at >= 0);
  const mean = (cells: readonly Cell[]) => (known.length === 0 ? null : known.reduce((sum, at) => sum + cells[at]!.loss, 0) / known.length);
  const last = rows.at(-1)!;
  const width = Math.max(1, Math.min(WINDOW, Math.floor(CELLS / rows.length)));
  const first = Math.min(question.first ?? 0, Math.max(0, outputs.length - width));
  return {
    ...labelsOf(shared, subject), pass: "browser", layers: rows.length, count: outputs.length, first,
    holes: shared.run.task === "masked" ? subject.ids.flatMap((id, position) => (id === shared.tokenizer.roles.mask ? [position] : [])) : [],
    outputs: outputs.slice(first, first + width).map((output, at) => ({
      place: output.position, answer: output.answer, known: output.known, text: name(output.answer), loss: last[first + at]!.loss,
    })),
    grid: rows.map((cells) => cells.slice(first, first + width).map((cell) => ({
      ...cell, top: cell.top.map(([id, probability]) => ({ id, text: name(id), probability })),
    }))),
    curve: known.length === 0 ? null : rows.map(mean), known: known.length, loss: mean(last),
    settled: rows.map((cells) => cells.filter((cell, at) => cell.top[0]![0] === last[at]!.top[0]![0]).length / cells.length),
    python: script(
      shared,
      ["from glassformer.inspection.attribution import case_of, lens", "from glassformer.inspection.explain import unshortened_subject_of"],
      [
        `subject = unshortened_subject_of(model, ${arguments_(question)})`,
        `case = case_of(subject, everywhere=True${question.target != null ? ", end=model.tokenizer.end_id" : ""})`,
        `found = lens(case.model, case.tokens, case.outputs, case.target, top=${TOP})`,
        "print(found.curve)",
        "print(found.ranks.tolist(), found.losses.tolist(), found.probabilities.tolist())",
      ],
    ),
  };
}

interface Cell {
  top: [id: number, probability: number][];
  rank: number;
  loss: number;
}

/** Logits of the final norm and the output head on a residual stream: a row for each output. */
function logitsOf(shared: SharedFile, stream: Matrix): Float64Array[] {
  const { model } = shared;
  const { norm, norm_eps } = model.settings;
  const logits = model.head(normed(stream, norm, model.last.norm, norm_eps));
  return Array.from({ length: logits.rows }, (_, row) => rowOf(logits, row));
}

function cellOf(logits: Float64Array, { answer }: Output): Cell {
  const sum = logSumExp(logits);
  const own = logits[answer]!;
  const top = largest(logits, TOP).map((id): [number, number] => [id, Math.exp(logits[id]! - sum)]);
  return { top, rank: 1 + logits.reduce((above, logit) => above + (logit > own ? 1 : 0), 0), loss: sum - own };
}
