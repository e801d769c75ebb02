import type { Words } from "../lib/levels";

export const EMBEDDINGS: Words = {
  question: "Which tokens have similar vectors?",
  depths: {
    school: "Every token has a position on the model's own map. Nobody drew the map: the model learnt it in training. Tokens that are used in the same way end up close together. Click one and see who its neighbours are.",
    student: "Each token is a vector, a row of the embedding table. The map shows the two directions in which the vectors differ most (principal components). Similarity is measured by the cosine of the angle, in all directions, not on the map.",
    practitioner: "Related neighbours show that training has shaped the vectors; random neighbours often mean that the token was too rare. The share of variance shows how much of the table the map captures: often little, so rely on the cosines.",
    engineer: "PCA by the eigenvectors of the centred D × D matrix, in float64; the sign of a direction is fixed by its largest entry. Cosines use the raw rows, not centred and before any scaling.",
    researcher: "A linear view of the input embedding (and of the output, where they are tied). The first component often reflects frequency. Raw cosines include the common mean direction: compare ranks rather than values.",
  },
  formula: "cos(a, b) = a · b / (|a| |b|)",
  agrees: "each cosine equals the value recomputed from the table; the shares of variance add up to 1 over all directions.",
};
