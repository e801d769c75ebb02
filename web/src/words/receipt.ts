import type { Words } from "../lib/levels";

export const RECEIPT: Words = {
  question: "Why this token? How much did each part contribute to its logit?",
  depths: {
    school: "Every part of the model says how much it is for or against a word. Here is the bill: each line is one part, lines to the right are for it, lines to the left against it. All lines together make the word's score.",
    student: "A token's logit is a sum of contributions: the embedding, each attention head, each feed-forward layer, and biases. The waterfall adds them in the order of the model. Open a head to see the contribution of each token.",
    practitioner: "See which heads and layers contribute most, and from which tokens. With a second token, it explains the difference between the two logits. It counts direct contributions to the logit, not effects through later parts.",
    engineer: "Direct logit attribution with the final norm's scale held at its value; head parts split by source token through A, V and W_O. Computed in float64 from the trace: the residual is the float32 rounding of the model.",
    researcher: "An exact linear split of the final residual stream along the unembedding direction (Elhage et al. 2021). Indirect effects are not included: use ablation or patching for those. Post-norm models have no such split, and are refused.",
  },
  formula: "logit = Σ_parts u · part + biases,   u = (gain · w − mean) / σ",
  agrees: "the sum equals the model's logit to 1e-4; the residual is printed.",
};
