import type { Explanation } from "../lib/levels";

export const VERIFICATION: Explanation = {
  question: "Can you trust the model's numbers?",
  levels: {
    school: "Programs can contain mistakes. Here the model is put to the test: each square is one test. It is green if the model passed, red if it failed, and grey if there is no result.",
    student: "Each line is a check of this model, for example: later tokens do not change earlier predictions, padding does not change predictions, or two ways to compute the same number agree. The measured value is shown with its limit.",
    practitioner: "Silent errors, such as a leaking mask or a drifting cache, do not crash the program; they only make the model worse. These checks look for them, with your own weights and, if it is available, your own text.",
    engineer: "This is the report of `glass verify`: the measured value, unit and limit of each check. The report is saved as verify.json in the run folder, with the SHA-256 of the weights, and is valid only for weights with that hash.",
    researcher: "Most checks compare two computations: cached with uncached, batched with single-row, explicit with fused attention, gradients with those of a NumPy reference, or resumed with uninterrupted training. They measure a difference of numbers, relative in most checks, or count the files, texts, tokens, hypotheses or tensors that differ. The unit of each check says which.",
  },
  formula: "a check passes if measured ≤ limit",
  check: "the report matches `glass verify`, and its hash matches the loaded weights.",
};
