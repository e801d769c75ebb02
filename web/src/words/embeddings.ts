import type { Words } from "../lib/levels";

export const EMBEDDINGS: Words = {
  question: "Which tokens have similar vectors?",
  depths: {
    school: "Every token is a dot on the model's own map. Nobody drew the map: the model learnt it in training. Tokens that are used in the same way end up close together. Click a token to see its neighbours.",
    student: "Each token has a vector, a row of the embedding table. The map shows the two directions in which the vectors vary most: the first two principal components. Similarity is the cosine of the angle between two whole vectors; the distance on the map does not matter.",
    practitioner: "Neighbours that are used similarly show that training has shaped the vectors; unrelated neighbours often mean that a token was too rare. The variance explained shows how much of the table the map captures. It is often small, so rely on the cosines.",
    engineer: "The principal components are the eigenvectors of the D × D matrix XᵀX of the centred vectors X, in float64; the largest entry of each is positive. Cosines use the rows of the table as they are: not centred, and before any scaling.",
    researcher: "The map is a linear projection of the input embedding (and of the output embedding, if the two are tied). The first component often reflects frequency. Raw cosines include the common mean direction: compare ranks rather than values.",
  },
  formula: "cos(a, b) = a · b / (|a| |b|)",
  agrees: "each cosine equals the value recomputed from the table; the fractions of the variance sum to 1 over all components.",
};
