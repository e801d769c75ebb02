import type { Explanation } from "../lib/levels";

export const REPLAY: Explanation = {
  question: "How did the run learn?",
  levels: {
    school: "A model begins by guessing blindly and gets better little by little. Here you can watch it learn, like a film: press play, and see what it writes at each moment.",
    student: "The loss measures how much the correct answers surprise the model, so it falls as the model learns. If the run has snapshots, move the slider to see one head on one text, and a sample of the output, at each recorded step.",
    practitioner: "The view shows loss, learning rate and gradient norm as the run logged them, and snapshots of the heads on fixed texts. A growing gap between training and held-out loss shows overfitting; a jump of the gradient norm often comes with a jump of the loss.",
    engineer: "The curves come from metrics.jsonl. With train.snapshots above 0, training records snapshots, always on the same texts, without changing the weights or the random numbers of training. Attention maps are stored as bytes (255 × weight), with an error of at most half of 1/255.",
    researcher: "The role scores of the heads are shown over snapshots that are log-spaced in steps. A head is born in a role at the first of three consecutive snapshots in which its score passes the tests of `glass heads` for this role: threshold, ratio to chance, and interval. Check which role appears first, and whether the loss curve bends at the same step.",
  },
  formula: "birth in a role: the first of 3 consecutive snapshots in which the head has the role",
  check: "the curves match metrics.jsonl, births match `glass heads --history`, and maps recomputed from the last checkpoint match its snapshot to 1/255.",
};
