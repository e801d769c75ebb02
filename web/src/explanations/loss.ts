import type { Explanation } from "../lib/levels";

export const LOSS: Explanation = {
  question: "Which tokens surprise the model?",
  levels: {
    school: "The model guesses each piece of your text before it sees the piece. The stronger the colour of a piece, the more it surprised the model. Try a strange word in the middle!",
    student: "Surprisal is −ln P of the actual token: 0 if the model was certain of the token, large if it gave the token a low probability. The mean over all predicted tokens is the loss, the number that training minimizes.",
    practitioner: "The loss differs between tokens: early positions have little context, rare tokens were seldom seen in training, and tokens that can be copied from earlier in the text should have a low loss. Each bar is the mean loss of a group of tokens; the percentage is the group's part of the sum over all tokens.",
    engineer: "Texts are cut into rows as in training, so the mean over the validation split equals the loss of `glass evaluate`. A masked model is an exception: here, each token is masked in turn (one forward pass each), while `glass evaluate` masks several tokens at once. A run that translates or summarizes predicts each target token from the source and the target tokens before it.",
    researcher: "The view groups the surprisal by position in the row, by unigram count in the training text (if it is available), and by associative recall: hits (the bigram occurs earlier in the row) and other tokens. For the validation split, it also shows the in-context-learning score of Olsson et al. (2022): the loss at a late position minus the loss at an early position.",
  },
  formula: "loss = (1/N) Σ −ln P(tokenₜ | visible context)",
  check: "the mean over this text equals that of `glass probe RUN surprisal --text FILE` for a run that can be probed; the mean over the validation split equals the loss of `glass evaluate`, except for a masked model.",
};
