import type { Explanation } from "../lib/levels";

export const SCORE: Explanation = {
  question: "How is one attention weight computed?",
  levels: {
    school: "The word that looks has a list of numbers that says what it seeks. The other word has a list that says what it offers. Multiply the two lists number by number and add the products: a large sum means a good match, so the other word gets more attention.",
    student: "The query q of one token and the key k of another are multiplied entry by entry and summed. The sum is divided by √d, so that it does not grow with the width of the head. Softmax then turns each row of scores into weights that sum to 1.",
    practitioner: "See which of the d entries increase the score, and which decrease it. “Divide all scores by” acts as a temperature: it makes the row flatter or more peaked. The page computes its effect from the scores shown.",
    engineer: "q and k are shown as they enter the dot product: after the projection and, if the model has them, the query-key norm and the rotary embedding. With grouped-query attention, several heads share one k. The bias comes from ALiBi or relative positions; the mask adds −∞.",
    researcher: "This is the exact decomposition of one pre-softmax score over the coordinates of the head. The model uses only the sum, so a single coordinate has no meaning of its own unless the basis is privileged, for example by rotary pairs.",
  },
  formula: "a_ij = exp(s_ij) / Σ_m exp(s_im),   s_ij = Σ_c q_ic k_jc / √d + b_ij",
  check: "the weight equals its cell in the attention map to 1e-6.",
};
