import type { Words } from "../lib/levels";

export const IMPORTANCE: Words = {
  question: "Do attention weights show which tokens matter?",
  depths: {
    school: "Which words were important? One way is to see where the model looked. Another is to cover a word and see whether the answer changes. The two do not always agree: looking at something is not the same as needing it.",
    student: "Three measures of the same tokens. Attention: the weights of the last layer. Rollout: the weights of all layers, multiplied. Occlusion: how much less likely the answer becomes when the token is replaced. Only occlusion measures a causal effect.",
    practitioner: "Before you explain a model by its attention, check here: where the correlation with occlusion is low, the weights do not show what the answer depends on. Occlusion itself depends on the replacement token, which is shown.",
    engineer: "Occlusion runs the model once more for each token, in batches, and compares ln p of the same answer. Rollout averages the heads and adds the identity, half each. Spearman correlations use the tokens visible to the answer; occlusion is ranked by its absolute value.",
    researcher: "After Jain & Wallace 2019 and Abnar & Zuidema 2020. Weights ignore values, feed-forward layers and signs; replaced tokens may lie off the training distribution. Low agreement shows that the weights do not explain the answer, not which measure is right.",
  },
  formula: "occlusion(j) = ln p(answer | text) − ln p(answer | text with token j replaced)",
  agrees: "each occlusion number equals that of a rerun with the token replaced.",
};
