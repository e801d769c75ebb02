import type { Explanation } from "../lib/levels";

export const IMPORTANCE: Explanation = {
  question: "Do attention weights show which tokens matter?",
  levels: {
    school: "Which words were important? One way is to see where the model looked. Another is to cover a word and see whether the answer changes. The two ways do not always agree: looking at a word is not the same as needing it.",
    student: "The view shows three measures of the importance of each token. Attention: the weights of one layer, averaged over its heads. Rollout: the weights of all layers up to that layer, multiplied. Occlusion: how much less likely the answer becomes when the token is replaced. Only occlusion measures a causal effect.",
    practitioner: "Before you explain an answer by attention weights, look at their correlation with occlusion: if it is low, the weights do not show what the answer depends on. Occlusion itself depends on the replacement token, which is shown.",
    engineer: "Occlusion runs the model once for each replaced token, in batches, and compares ln p of the same answer. Rollout multiplies one matrix for each attention layer: the mean of the heads and the identity, each with weight 1/2. Spearman correlations use the tokens that the answer can attend to; occlusion is ranked by its absolute value.",
    researcher: "The view follows Jain & Wallace 2019 and Abnar & Zuidema 2020. Weights ignore values, feed-forward layers and signs; a text with a replaced token may lie off the training distribution. A low correlation shows that two measures disagree, not which of them is right.",
  },
  formula: "occlusion(j) = ln p(answer | text) − ln p(answer | text with token j replaced)",
  check: "each occlusion value equals that of a separate forward pass with the token replaced.",
};
