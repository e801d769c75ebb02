import type { Words } from "../lib/levels";

export const EMBEDDINGS: Words = {
  question: "Which tokens are similar to the model?",
  depths: {
    school: "Every token has a position on the model's own map. Nobody drew the map: it came about in training. Tokens that are used in the same way end up close together. Click one and see who its neighbours are.",
    student: "Each token is a vector, a row of the embedding table. The map shows the two directions in which the vectors differ most (principal components). Similarity is measured by the cosine of the angle, in all directions, not on the map.",
    practitioner: "Good neighbours say that the table has learnt something; random ones say that a token was too rare. The share of variance tells how much of the truth the picture holds: often little, so trust the cosines.",
    engineer: "PCA by the eigenvectors of the centred D × D matrix, in float64; the sign of a direction is fixed by its largest entry. Cosines are of the raw rows, not centred, as the model has them before any scaling.",
    researcher: "A linear view of the input embedding (and of the output, where they are tied). Frequency often makes the first component. Raw cosines carry the common mean direction: compare ranks rather than sizes.",
  },
  formula: "cos(a, b) = a · b / (|a| |b|)",
  agrees: "each cosine recomputed from the table; the shares of variance add up to 1 over all directions.",
};
