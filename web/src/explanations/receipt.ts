import type { Explanation } from "../lib/levels";

export const RECEIPT: Explanation = {
  question: "Why this token? How much did each part contribute to its logit?",
  levels: {
    school: "Every part of the model gives points for or against a word. Here is the receipt: each line is one part. Bars to the right are points for the word, bars to the left are points against it. All points together are the word's score.",
    student: "A token's logit is a sum of contributions: the embedding, each attention head, each feed-forward layer, and biases. The waterfall adds them in the order of the model. Open a head to see the contribution of each token.",
    practitioner: "See which heads and layers contribute most, and from which tokens. If you choose a second token, the receipt explains the difference between the two logits. It counts direct contributions to the logit, not effects through later parts.",
    engineer: "This is direct logit attribution with the scale of the final norm held fixed. The contribution of a head is split by source token through A, V and W_O. The sum is computed in float64 from a recorded forward pass; the residual is the rounding error of the model's forward pass.",
    researcher: "The receipt is an exact linear split of the final residual stream along the unembedding direction (Elhage et al. 2021). It does not include indirect effects: use ablation or patching to measure them. Post-norm models, and models with an activation before the output layer, have no such split, so they have no receipt.",
  },
  formula: "logit = Σ_parts u · part + biases\nu = (g − mean of g) / σ for LayerNorm, g / σ for RMSNorm\ng = gain · w",
  check: "the sum equals the model's logit to 1e-4; the residual is their difference.",
};
