/** Python scripts that compute the numbers of a view from the shared file with the library. */
import type { SharedFile } from "../shared-file";
import type { TextQuestion } from "./attention-layers";

/** A script: imports, loading of the model, and the given lines. */
export function script(shared: SharedFile, imports: readonly string[], lines: readonly string[]): string {
  const own = [...imports.filter((line) => line.includes("glassformer")), "from glassformer.app.share.loading import load_shared"];
  const others = imports.filter((line) => !line.includes("glassformer"));
  const first = others.length > 0 ? [...others, "", ...own.sort()] : own.sort();
  return [...first, "", `model = load_shared(${quoted(fileName(shared))})`, ...lines].join("\n") + "\n";
}

/** A script that records activations of one forward pass in `found`. */
export function recordingScript(shared: SharedFile, question: TextQuestion, names: readonly string[], lines: readonly string[]): string {
  return script(
    shared,
    ["import torch", "from glassformer.inspection.explain import unshortened_subject_of", "from glassformer.inspection.recording import record"],
    [
      `subject = unshortened_subject_of(model, ${arguments_(question)})`,
      `target = ${shared.isEncoderDecoder ? "torch.tensor([subject.target_ids])" : "None"}`,
      `found = record(subject.model, torch.tensor([subject.ids]), target, keep=(${names.map(quoted).join(", ")},))`,
      ...lines,
    ],
  );
}

/** The arguments for a text and, if given, its target. */
export function arguments_({ text, target }: TextQuestion): string {
  return target == null ? quoted(text) : `${quoted(text)}, ${quoted(target)}`;
}

/** A Python string literal, which JSON writes in the same way. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}

function fileName(shared: SharedFile): string {
  return decodeURIComponent(location.pathname.split("/").at(-1) ?? "") || `${shared.run.name}.html`;
}
