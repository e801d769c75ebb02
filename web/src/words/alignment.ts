import type { Words } from "../lib/levels";

export const ALIGNMENT: Words = {
  question: "Which source tokens does each target token attend to?",
  depths: {
    school: "When the model translates, it looks back at your sentence for every word that it writes. Each row is a word that it writes; strong colours show which words it looks at for it.",
    student: "Row: a target token. Column: a source token. Cross-attention shows which source tokens the decoder attends to. Coverage sums a column: how much attention a source token gets over the whole translation.",
    practitioner: "A source token with very low coverage may be missing from the translation; one with very high coverage may be translated twice. A row with high entropy attends to many tokens, often for words that only the grammar needs. The hypotheses are the candidates of beam search.",
    engineer: "Cross-attention weights of one head, or their mean over the heads of a layer. Row i reads target token i and predicts the next one, so the row explains the following token. Coverage: column sums. Entropy of each row in nats.",
    researcher: "Cross-attention is a poor word aligner by itself: it lags by one token, drifts to the end token, and differs between heads. Read single heads before the mean; coverage and entropy are computed from the map shown.",
  },
  formula: "coverage_j = Σ_i A_ij,   H_i = −Σ_j A_ij ln A_ij",
  agrees: "each row sums to 1 with no weight on padding; the hypothesis scores match beam search.",
};
