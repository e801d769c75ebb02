import type { Explanation } from "../lib/levels";

export const FOCUS: Explanation = {
  question: "Where does each head attend from this token?",
  levels: {
    school: "Choose a word. Each line shows where one head looks from this word. The arcs show the words that the chosen head looks at most.",
    student: "The view shows one query token in all heads. Each strip is the token's row in the attention map of one head. The arcs show the largest weights of the chosen head, and “all others” is the total weight of the other tokens. Together they sum to 1.",
    practitioner: "Compare all heads at one token: previous-token heads, and heads that attend mostly to the first token, are easy to see. The weight “all others” is the total weight of the tokens without an arc.",
    engineer: "The view shows the attention rows of one query in all heads of its stack, including cross-attention. For each row, it lists the k largest weights with their positions, and the sum of the other weights. This sum is computed by adding these weights, not as 1 − Σ top-k.",
    researcher: "The view shows the attention distribution of one query in every head of its stack: the top-k weights, and the total mass of all other weights.",
  },
  formula: "Σ top-k + Σ others = 1",
  check: "the shown weights and the sum of the others add up to 1, and each weight equals its cell in the attention map.",
};
