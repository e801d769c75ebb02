import type { Words } from "../lib/levels";

export const PROOF: Words = {
  question: "Can you trust the model's numbers?",
  depths: {
    school: "Programs can contain mistakes. Here the model is put to the test: each square is one test, and it is green if the model passed.",
    student: "Each line is a check of this model, for example: future tokens change nothing, padding changes nothing, or two ways to compute the same number agree. The measured value is shown with its limit.",
    practitioner: "Silent errors, such as a leaking mask or a drifting cache, do not crash the program; they only make the model worse. These checks look for them, with your own weights and rows of your own text.",
    engineer: "This is the proof sheet of `glass verify`: the measured value, unit and limit of each check, and the SHA-256 of the weights. The sheet is saved as verify.json in the run folder, and is valid only for weights with that hash.",
    researcher: "Each check measures the largest difference, relative to the largest expected number: cached against uncached, batched against single-row, explicit against fused attention, analytic gradients against a NumPy reference in float64, or resumed against uninterrupted training.",
  },
  formula: "a check passes if measured ≤ limit",
  agrees: "the sheet matches `glass verify`, and its hash matches the loaded weights.",
};
