import type { Words } from "../lib/levels";

export const LENS: Words = {
  question: "In which layer does the answer appear?",
  depths: {
    school: "The model thinks in layers, one after the other. Here we ask after each layer: if you had to answer now, what would you say? At first it guesses badly. Further down, you can see in which row the right word appears.",
    student: "Each row applies the final norm and the output layer directly to the vectors after one layer. A cell shows the likeliest token, and its colour shows the probability of this token. The last row is the model's actual output.",
    practitioner: "See in which layer an answer appears, and where the prediction changes. An answer that appears early needs no later layers; an answer that appears only in the last layer is fragile. The curve shows the loss that the model would have if it ended after each layer.",
    engineer: "Each row is softmax(head(norm(x_l))): the statistics of the final norm are recomputed for each layer. Rank and surprisal refer to the actual token of the text. The last row is compared with a plain forward pass of the model.",
    researcher: "This is the logit lens (nostalgebraist 2020). Early rows are approximate: those layers were not trained to be decoded by the output layer, and may use a rotated basis. A post-norm model has no residual stream to decode, so the lens does not apply to it.",
  },
  formula: "p_l = softmax(head(norm(x_l)))",
  agrees: "the last row equals the model's own output, and its mean surprisal equals the loss.",
};
