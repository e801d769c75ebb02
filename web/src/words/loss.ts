import type { Words } from "../lib/levels";

export const LOSS: Words = {
  question: "Which tokens surprise the model?",
  depths: {
    school: "The model guesses each piece of your text before it sees it. Where the guess was good the piece stays pale; where it was surprised the piece is dark. Try a strange word in the middle!",
    student: "Surprisal is −ln P of the actual token: 0 when the model was certain of it, large when it gave it a low probability. The mean over all tokens is the loss, the number that training minimizes.",
    practitioner: "The loss differs between tokens. Early positions have little context, rare tokens were seldom seen in training, and tokens that can be copied from earlier in the text should have a low loss. The bars show the share of each group in the total loss.",
    engineer: "Rows are cut as in training, so the mean over the held-out part equals that of `glass evaluate`. For a masked model each token is masked in turn (one pass each); a translator reads the true preceding target tokens.",
    researcher: "Surprisal by position in the row, by unigram count in training, and split into associative-recall hits (the bigram occurs earlier in the row) and the rest. Late minus early is the in-context-learning score of Olsson et al. (2022).",
  },
  formula: "loss = (1/N) Σ −ln P(tokenₜ | visible context)",
  agrees: "the mean equals that of `glass probe surprisal --text` for this text, and that of `glass evaluate` for the held-out part.",
};
