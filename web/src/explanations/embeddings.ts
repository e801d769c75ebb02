import type { Explanation } from "../lib/levels";

export const EMBEDDINGS: Explanation = {
  question: "Which tokens have similar vectors?",
  levels: {
    school: "Every token is a dot on the model's own map. Nobody drew the map: the model learned it in training. Tokens that are used in the same way often end up close together. Click a token to see its neighbours.",
    student: "Each token has a vector, a row of the embedding table. The map shows the two directions in which the vectors vary most: the first two principal components. Similarity is the cosine of the angle between two whole vectors; the distance on the map does not matter.",
    practitioner: "If the neighbours of a token are used like the token itself, training has shaped its vector; unrelated neighbours often mean that the token was too rare. The variance explained shows how much of the table the map captures. It is often small, so rely on the cosines.",
    engineer: "The principal components are the eigenvectors of the D × D matrix XᵀX of the centred vectors X, in float64; in each, the entry with the largest absolute value is positive. Cosines use the rows of the table as they are: not centred, and before any scaling.",
    researcher: "The map is a linear projection of the input embedding (and of the output embedding, if the two are tied). The first component often reflects frequency. Raw cosines include the common mean direction: compare ranks rather than values.",
  },
  formula: "cos(a, b) = a · b / (|a| |b|)",
  check: "each cosine equals the value recomputed from the table; the fractions of the variance sum to 1 over all components.",
};
