import type { Words } from "../lib/levels";

export const PROOF: Words = {
  question: "Can its numbers be trusted?",
  depths: {
    school: "Machines make mistakes too, and people make them in programs. Here the model is put to the test: each square is a promise, green if it was kept.",
    student: "Each line is a promise about this very model: that the future changes nothing, that padding changes nothing, that two ways to compute the same thing agree. What was measured stands beside the limit.",
    practitioner: "Silent mistakes, such as a mask that leaks or a cache that drifts, do not crash: they only make models worse. These checks find them on your own weights and rows of your own text.",
    engineer: "The sheet of `glass verify`: measured value, unit and limit of each check, bound to the SHA-256 of the weights. It is kept as verify.json in the run, and counts only for the weights whose hash it has.",
    researcher: "Cached against uncached, batched against alone, explicit against fused attention, analytic gradients against a NumPy reference in float64, resumed against uninterrupted: largest differences, relative to the largest wanted number.",
  },
  formula: "a check passes if measured ≤ limit",
  agrees: "the sheet is that of `glass verify`, and its hash is that of the weights that are loaded.",
};
