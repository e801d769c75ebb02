import type { Explanation } from "../lib/levels";

export const ATTENTION: Explanation = {
  question: "Where does this head attend?",
  levels: {
    school: "While the model reads, each word looks at other words to find out what it means here. Each row is one word that looks. The stronger the colour of a cell, the more this word looks at the word of that column.",
    student: "Each row is a query token, and each column is a key token. A weight is the fraction of the query's attention that goes to the key, and each row sums to 1. Grey cells are masked: a decoder cannot attend to later tokens.",
    practitioner: "These are the weights of one head on your text. Choose the scale √ or log to see small weights, zoom in on a long text until at most 64 tokens are shown, and click a cell to see how its weight is computed. A large weight does not prove a causal effect: compare it with the view “Importance three ways”.",
    engineer: "The map is softmax(q kᵀ / √d + bias), masked, from the model's own forward pass. For a long text, each cell shows the largest weight of a block, so that a stripe one token wide stays visible; a mean would hide it.",
    researcher: "The map shows the exact float32 weights of one head. Max-pooling affects only the display: row sums and the largest weight are computed before it. Attention weights are descriptive: compare them with rollout, occlusion and patching on the same tokens.",
  },
  formula: "A = softmax(Q Kᵀ / √d + B + M), row by row",
  check: "each row sums to 1, and masked cells are exactly 0.",
};
