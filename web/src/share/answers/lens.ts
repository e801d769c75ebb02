/** Answer of the view `lens`; see `app/server/views/lens.py`. */
import { Problem } from "../../lib/api";
import type { Shared, Subject } from "../shared";
import { largest, logSumExp, type Matrix, normed, rowOf } from "../tensors";
import { labelsOf, shown, type TextQuestion } from "./looked";
import { arguments_, script } from "./python";

/** Maximum number of positions in an answer. */
const WINDOW = 64;
/** Maximum number of cells in an answer. */
const CELLS = 2_500;
/** Number of candidates of a cell. */
const TOP = 3;

/** An answer at a position; `known`: whether it is the actual next token of the text. */
export interface Output {
  place: number;
  reads: number[];
  answer: number;
  known: boolean;
}

/** The answer at each position: `answer`, else the next token of the text, else the likeliest. A classifier has one: a label. */
export function outputsOf(shared: Shared, subject: Subject, whole: boolean, answer: number | null = null): Output[] {
  const { ids, pass } = subject;
  const { settings } = shared.model;
  const likeliest = (place: number) => largest(without(rowOf(pass.logits, place), shared, subject), 1)[0]!;
  if (settings.classifier) {
    const reads = settings.pooling === "first" ? [0] : ids.map((_, place) => place);
    return [{ place: 0, reads, answer: answer ?? likeliest(0), known: false }];
  }
  const end = whole && shared.writesForSource ? shared.tokenizer.roles.end : null;
  const following = settings.family === "encoder" ? [] : [...ids.slice(1), end];
  return ids.map((_, place) => {
    const next = following[place] ?? null;
    return { place, reads: [place], answer: answer ?? next ?? likeliest(place), known: answer === null && next !== null };
  });
}

/** Logits, with -∞ for tokens that are not candidates: the special tokens of a masked model. */
function without(logits: Float64Array, shared: Shared, subject: Subject): Float64Array {
  if (shared.run.task !== "masked" || subject.source !== null) return logits;
  return logits.map((value, id) => (shared.tokenizer.special.has(id) ? -Infinity : value));
}

/** Text of a token, or name of a class. */
export function nameOf(shared: Shared): (id: number) => string {
  return shared.model.settings.classifier ? (id) => shared.run.labels[id]! : (id) => shown(shared.tokenizer.text(id));
}

export function lens(shared: Shared, question: TextQuestion & { first?: number }): object {
  const { model } = shared;
  if (model.settings.norm_order === "post") {
    throw new Problem(
      "This model's blocks each end with a norm (model.norm_order = post), so the head cannot read earlier layers.",
      "Choose a run with model.norm_order = pre or output.",
    );
  }
  const subject = shared.subject(question.text, question.target ?? null);
  const outputs = outputsOf(shared, subject, question.target != null);
  const name = nameOf(shared);
  const rows = subject.pass.stack.streams.map((stream) => read(shared, stream).map((cell, at) => cellOf(cell, outputs[at]!)));
  const known = outputs.map((output, at) => (output.known ? at : -1)).filter((at) => at >= 0);
  const mean = (cells: readonly Cell[]) => (known.length === 0 ? null : known.reduce((sum, at) => sum + cells[at]!.loss, 0) / known.length);
  const last = rows.at(-1)!;
  const width = Math.max(1, Math.min(WINDOW, Math.floor(CELLS / rows.length)));
  const first = Math.min(question.first ?? 0, Math.max(0, outputs.length - width));
  return {
    ...labelsOf(shared, subject), pass: "browser", layers: rows.length, count: outputs.length, first,
    holes: shared.run.task === "masked" ? subject.ids.flatMap((id, place) => (id === shared.tokenizer.roles.mask ? [place] : [])) : [],
    outputs: outputs.slice(first, first + width).map((output, at) => ({
      place: output.place, answer: output.answer, known: output.known, text: name(output.answer), loss: last[first + at]!.loss,
    })),
    grid: rows.map((cells) => cells.slice(first, first + width).map((cell) => ({
      ...cell, top: cell.top.map(([id, probability]) => ({ id, text: name(id), probability })),
    }))),
    curve: known.length === 0 ? null : rows.map(mean), known: known.length, loss: mean(last),
    settled: rows.map((cells) => cells.filter((cell, at) => cell.top[0]![0] === last[at]!.top[0]![0]).length / cells.length),
    python: script(
      shared,
      ["from glassformer.inspection.attribution import case_of, lens", "from glassformer.inspection.explain import whole_subject_of"],
      [
        `subject = whole_subject_of(model, ${arguments_(question)})`,
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
function read(shared: Shared, stream: Matrix): Float64Array[] {
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
