import type { Words } from "../lib/levels";

export const LOSS: Words = {
  question: "Which tokens surprise the model?",
  depths: {
    school: "The model guesses each piece of your text before it sees the piece. A piece that it expected is pale; a piece that surprised it is dark. Try a strange word in the middle!",
    student: "Surprisal is −ln P of the actual token: 0 if the model was certain of the token, large if it gave the token a low probability. The mean over all tokens is the loss, the number that training minimizes.",
    practitioner: "The loss differs between tokens: early positions have little context, rare tokens were seldom seen in training, and tokens that can be copied from earlier in the text should have a low loss. Each bar is the mean loss of a group of tokens; the percentage is the group's part of the total loss.",
    engineer: "Texts are cut into rows as in training, so the mean over the validation split equals that of `glass evaluate`. For a masked model, each token is masked in turn (one forward pass each). A translation model reads the preceding tokens of the target.",
    researcher: "The view groups the surprisal by position in the row, by unigram count in training, and by associative recall: hits (the bigram occurs earlier in the row) and other tokens. The loss at a late position minus the loss at an early position is the in-context-learning score of Olsson et al. (2022).",
  },
  formula: "loss = (1/N) Σ −ln P(tokenₜ | visible context)",
  agrees: "the mean equals that of `glass probe surprisal --text` for this text, and that of `glass evaluate` for the validation split.",
};
