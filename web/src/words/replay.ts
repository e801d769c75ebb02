import type { Words } from "../lib/levels";

export const REPLAY: Words = {
  question: "How did the run learn?",
  depths: {
    school: "A model begins by guessing blindly and gets a little better with each step. Here you can watch it learn, like a film: press play, and see what it writes at each moment.",
    student: "The curve falls as the model learns: the loss is how surprised it is by the right next token. Move the slider to see the same head on the same text, and the generated text, at each recorded step.",
    practitioner: "Loss, learning rate and gradient norm as the run logged them, and snapshots of all heads on fixed texts. A growing gap between training and held-out loss is overfitting; a jump of the gradient norm often comes with a bump of the loss.",
    engineer: "Curves come from metrics.jsonl; train.snapshots records the snapshots, on the same texts each time and without using random numbers. Maps are stored as bytes (255 × weight), accurate to half of 1/255.",
    researcher: "Role scores of every head over log-spaced snapshots. A head counts as born at the first of three snapshots in a row whose score passes threshold, lift and interval. Check which role appears first, and whether the loss curve bends at the same step.",
  },
  formula: "born in a role: the first of 3 snapshots in a row with score ≥ threshold",
  agrees: "the curves match metrics.jsonl, births match `glass heads --history`, and the last snapshot matches the current weights to 1/255.",
};
