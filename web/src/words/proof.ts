import type { Words } from "../lib/levels";

export const PROOF: Words = {
  question: "Can its numbers be trusted?",
  depths: {
    school: "Machines make mistakes too, and people make them in programs. Here the model is put to the test: each square is one test, green if it passed.",
    student: "Each line is a check of this model: future tokens change nothing, padding changes nothing, two ways to compute the same numbers agree. The measured value is shown next to its limit.",
    practitioner: "Silent errors, such as a leaking mask or a drifting cache, do not crash the program; they only make the model worse. These checks find them on your own weights and rows of your own text.",
    engineer: "The sheet of `glass verify`: measured value, unit and limit of each check, bound to the SHA-256 of the weights. It is kept as verify.json in the run, and is valid only for weights with that hash.",
    researcher: "Cached against uncached, batched against single-row, explicit against fused attention, analytic gradients against a NumPy reference in float64, resumed against uninterrupted: largest differences, relative to the largest expected number.",
  },
  formula: "a check passes if measured ≤ limit",
  agrees: "the sheet matches `glass verify`, and its hash matches the loaded weights.",
};
