import type { Explanation } from "../lib/levels";

export const TAPE: Explanation = {
  question: "How is the answer computed from the text, number by number?",
  levels: {
    school: "This is all the arithmetic that the model did for your text, from the first step to the last. Open a table of numbers and click a number to see which other numbers it was computed from. You could check it with a calculator.",
    student: "The view shows one forward pass step by step: each matrix with its formula, its shape and its first values. Open a matrix to see all its values. Click a cell to see how it was computed: for a matrix product, the row and the column, their products, and the sum.",
    practitioner: "These are the actual numbers of this run for this text: residual stream, norms, every head from Q, K and V to its output, feed-forward layers, logits. Trace an unusual value back to its origin.",
    engineer: "Each matrix with a formula comes from the model's own forward pass. It is also recomputed in float64, with the formula shown, from the matrices above it; the largest absolute difference shows the float32 rounding error.",
    researcher: "This is a complete, checked record of one forward pass. It leaves out no step between ids and logits, for decoders, encoders and encoder-decoders. A wrong formula would show as a large difference.",
  },
  check: "each matrix equals its formula applied to the matrices before it, up to rounding; the largest difference is shown.",
};
