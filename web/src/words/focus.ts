import type { Words } from "../lib/levels";

export const FOCUS: Words = {
  question: "Where does each head attend from this token?",
  depths: {
    school: "Choose a word. Each line shows where one head looks from there, and the arcs go to the words that it looks at most.",
    student: "One token, all heads. Each strip is that token's row of a head's attention map. The arcs show its largest weights; the rest is the total weight of all other tokens, so both sum to 1.",
    practitioner: "Compare all heads at one token: copying heads, previous-token heads, and heads that attend mostly to the first token are easy to see. The rest shows how much of the row the arcs leave out.",
    engineer: "L × H rows of one query. For each row: the k largest weights with their positions, and the remaining mass, summed from the row and not computed as 1 − Σ top-k.",
    researcher: "Per-query attention distributions over all heads. Top-k weights with the remaining mass: no weight is dropped without its mass being shown.",
  },
  formula: "Σ top-k + rest = 1",
  agrees: "the shown weights and the rest sum to 1, and each weight equals its cell in the attention map.",
};
