import type { Explanation } from "../lib/levels";

export const ALIGNMENT: Explanation = {
  question: "Which source tokens does each target token attend to?",
  levels: {
    school: "For every word that it writes, the model looks back at your text. Each row belongs to one word of its answer, and shows where the model looks to choose the word after it. Strong colours mark the words of your text that it looks at.",
    student: "Each row is a target token, and each column a source token. Cross-attention shows which source tokens the decoder attends to. Coverage is the sum of a column: the total attention that a source token gets.",
    practitioner: "A source token with very low coverage may be missing from the translation; a token with very high coverage may be translated twice. A row with high entropy spreads its attention over many source tokens, often for function words. The hypotheses are the results of beam search.",
    engineer: "The map shows the cross-attention weights of one head, or their mean over the heads of a layer. In row i, the decoder has read target token i and predicts token i + 1, so the row explains token i + 1. Coverage is the sum of a column; the entropy of each row is in nats.",
    researcher: "Cross-attention is a poor word aligner by itself: its rows are shifted by one token (row i explains token i + 1), it often attends to the end token, and it differs between heads. Look at single heads before the mean. Coverage and entropy are computed from the weights of the head or layer shown, before the map is pooled.",
  },
  formula: "coverage_j = Σ_i A_ij,   H_i = −Σ_j A_ij ln A_ij",
  check: "each row sums to 1 with no weight on padding; the scores of the hypotheses match beam search.",
};
