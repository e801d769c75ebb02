import type { Words } from "../lib/levels";

export const SCORE: Words = {
  question: "How is one attention weight computed?",
  depths: {
    school: "The word that attends has a list of numbers that says what it seeks, the other word one that says what it offers. Multiply them pair by pair and add up: a large sum means a good match, and it gets more attention.",
    student: "The query q of one token and the key k of another are multiplied entry by entry, and summed. The sum is divided by √d, so that it does not grow with the width; softmax then turns a row of scores into shares.",
    practitioner: "See which of the head's d entries increase this weight, and which decrease it. The temperature shows how flat or peaked the row would be if all its scores were divided by it; the page computes this from the scores shown.",
    engineer: "q and k as they enter the product: after the projection, the norm of queries and keys where there is one, and the rotation. With grouped queries several heads share one k. Bias is what ALiBi or relative positions add; the mask adds −∞.",
    researcher: "The exact decomposition of one pre-softmax logit over the head's coordinates. Single coordinates have no privileged basis unless something gives them one, such as rotary pairs: the model uses only the sum.",
  },
  formula: "a_ij = exp(s_ij) / Σ_m exp(s_im),   s_ij = Σ_c q_ic k_jc / √d + b_ij",
  agrees: "the weight equals its cell in the attention map to 1e-6.",
};
