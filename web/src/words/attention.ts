import type { Words } from "../lib/levels";

export const ATTENTION: Words = {
  question: "Where does this head attend?",
  depths: {
    school: "While the model reads, each word looks back at other words to understand itself. Each row here is one word that looks; the stronger the colour, the harder it looks at the word of that column.",
    student: "Row: the query token. Column: the token that it attends to. A weight is the share of attention that goes there, and each row sums to 1. Grey cells are hidden by the mask: a decoder cannot attend to later tokens.",
    practitioner: "The real weights of one head on your text. Switch the scale to √ or log to see weak weights, zoom where the text is long, and click a cell to see how its weight is computed. A large weight does not prove a causal effect: compare Importance.",
    engineer: "softmax(q kᵀ / √d + bias, masked) from the model's own forward pass. For long texts the server sends the largest weight of each block: a stripe one token wide stays visible, which a mean would hide.",
    researcher: "Exact weights of one head, float32. Max-pooling is for display only; row sums and the maximum are computed from the whole matrix. Attention is descriptive: compare rollout, occlusion and patching on the same tokens.",
  },
  formula: "A = softmax(Q Kᵀ / √d + B + M), row by row",
  agrees: "each row sums to 1, and masked cells are exactly 0.",
};
