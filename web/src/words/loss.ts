import type { Words } from "../lib/levels";

export const LOSS: Words = {
  question: "Which tokens surprise the model?",
  depths: {
    school: "The model guesses each piece of your text before it sees it. Where the guess was good the piece stays pale; where it was surprised the piece is dark. Try a strange word in the middle!",
    student: "Surprisal is −ln P of the token that really came: 0 when the model was certain of it, large when it gave it little chance. The mean over all tokens is the loss, the very number that training makes smaller.",
    practitioner: "The loss is not spread evenly. Early positions have little context, rare tokens were seldom learnt, and tokens that could be looked up earlier in the text should be cheap. The bars say how much of the whole loss each of these is.",
    engineer: "Rows are cut as in training, so the mean over the held-out part is that of `glass evaluate`. A masked model has each token hidden in turn (a pass each); a translator is given the true tokens before each of the target's.",
    researcher: "Surprisal by position in the row, by unigram count in training, and split into associative-recall hits (the bigram stands earlier in the row) and the rest. Late minus early is the in-context-learning score of Olsson et al. (2022).",
  },
  formula: "loss = (1/N) Σ −ln P(tokenₜ | what the model may see)",
  agrees: "the mean equals what `glass probe surprisal --text` gives for this text, and what `glass evaluate` gives for the held-out part.",
};
