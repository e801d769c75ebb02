import type { Words } from "../lib/levels";

export const TAPE: Words = {
  question: "What happens, number by number, between the text and the answer?",
  depths: {
    school: "This is all the arithmetic that the model did for your text, from the first step to the last. Open a table of numbers and click one of them: you see which numbers it was made of. You could check it with a calculator.",
    student: "One forward pass as a tape: each step with its formula, the shape of its matrix, and its first values. Open a matrix to see all of it. Click a cell, and its row and column, the products and their sum stand beside it.",
    practitioner: "The real numbers of this run for this text, not an illustration: where a value is odd, follow it back. Residual stream, norms, every head from Q, K and V to its output, the feed-forward layer, logits.",
    engineer: "Each matrix is traced from the model's own pass. Each is also recomputed in float64 from the matrices above it, by the formula that is printed; the largest absolute difference says how far float32 arithmetic was off.",
    researcher: "A complete and checked account of one pass: nothing between ids and logits is left out, for decoders, encoders and encoder-decoders. A formula that did not give its matrix would show it in the difference.",
  },
  agrees: "each matrix with what its formula gives from the matrices before it: the largest difference is printed.",
};
