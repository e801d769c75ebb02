import type { Words } from "../lib/levels";

export const LENS: Words = {
  question: "In which layer does the answer appear?",
  depths: {
    school: "The model thinks in layers, one after the other. Here we ask after each layer: if you had to answer now, what would you say? At first it guesses badly. Further down, you see the row in which the right word appears.",
    student: "Each row takes the vectors after one layer and applies the final norm and the output layer directly. The cell shows the likeliest token and, as colour, its probability. The last row is the model's actual output.",
    practitioner: "See in which layer an answer appears, and where the prediction changes. A token that is settled early needs no deep layers; one that appears only in the last layer is fragile. The curve is the loss if the model ended after each layer.",
    engineer: "softmax(head(norm(x_l))): the final norm's statistics are recomputed at each layer. Rank and surprisal refer to the actual token of the text. The last row is compared with a plain forward pass of the model.",
    researcher: "The logit lens (nostalgebraist 2020). Early rows are approximate: those layers were not trained to be decoded by the output layer, and their basis may be rotated. Post-norm models have no residual stream to decode, and are refused.",
  },
  formula: "p_l = softmax(head(norm(x_l)))",
  agrees: "the last row equals the model's own output, and its mean surprisal equals the loss.",
};
