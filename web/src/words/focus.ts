import type { Words } from "../lib/levels";

export const FOCUS: Words = {
  question: "Where does each head attend from this token?",
  depths: {
    school: "Choose a word. Each line shows where one head looks from there, and the arcs go to the words that it looks at most.",
    student: "One token, all heads. Each strip is that token's row of a head's attention map. The arcs show its strongest weights; what is left for all other tokens together is the rest, so that both sum to 1.",
    practitioner: "To see what a token gathers, read all heads at once: copying heads, heads that look at the token before, and those that rest on the first token stand out. The rest says how much of the row the arcs leave out.",
    engineer: "L × H rows of one query. For each the k largest weights with their positions, and the remaining mass 1 − Σ top-k, which is not assumed but summed from the row.",
    researcher: "Per-query attention distributions over all heads. Top-k with the rest mass is a faithful summary: nothing is thresholded away without its mass being shown.",
  },
  formula: "Σ top-k + rest = 1",
  agrees: "the shown weights and the rest sum to 1, and each is the cell of the attention map.",
};
