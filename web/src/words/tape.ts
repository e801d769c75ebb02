import type { Words } from "../lib/levels";

export const TAPE: Words = {
  question: "How is the answer computed from the text, number by number?",
  depths: {
    school: "This is all the arithmetic that the model did for your text, from the first step to the last. Open a table of numbers and click one of them: you see which numbers it was computed from. You could check it with a calculator.",
    student: "One forward pass as a tape: each step with its formula, the shape of its matrix, and its first values. Open a matrix to see all of it. Click a cell to see its row and column, the products and their sum.",
    practitioner: "The real numbers of this run for this text, not an illustration: trace an unusual value back to its origin. Residual stream, norms, every head from Q, K and V to its output, the feed-forward layer, logits.",
    engineer: "Each matrix is traced from the model's own pass. Each is also recomputed in float64 from the matrices above it, by the printed formula; the largest absolute difference shows the float32 rounding error.",
    researcher: "A complete and checked account of one pass: no step between ids and logits is left out, for decoders, encoders and encoder-decoders. A wrong formula would show as a large difference.",
  },
  agrees: "each matrix equals the result of its formula from the matrices before it; the largest difference is printed.",
};
