import type { Words } from "../lib/levels";

export const ALIGNMENT: Words = {
  question: "Which words of the source does each word of the target come from?",
  depths: {
    school: "When the model translates, it looks back at your sentence for every word that it writes. Each row is a word that it writes; strong colours show which words it looks at for it.",
    student: "Row: a token that is written. Column: a token of the source. Cross-attention says where the decoder looks while it writes. Coverage sums a column: how much attention a source token gets over the whole translation.",
    practitioner: "A source token with hardly any coverage may have been left out; one with a lot may be said twice. A row with high entropy looks everywhere, often for words that the grammar adds. The hypotheses are what beam search had to choose from.",
    engineer: "Cross-attention weights of one head, or their mean over the heads of a layer. Row i reads target token i and predicts the next one, so what the row explains is the token that follows. Coverage: column sums. Entropy of each row in nats.",
    researcher: "Soft alignment is a poor aligner out of the box: it lags by one token, drifts to the end token, and differs between heads. Read single heads before the mean; coverage and entropy are of what is shown.",
  },
  formula: "coverage_j = Σ_i A_ij,   H_i = −Σ_j A_ij ln A_ij",
  agrees: "each row sums to 1 with no weight on padding; scores of the hypotheses are those of beam search.",
};
