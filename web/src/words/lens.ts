import type { Words } from "../lib/levels";

export const LENS: Words = {
  question: "When does the model know its answer?",
  depths: {
    school: "The model thinks in layers, one after the other. Here we ask after each layer: if you had to answer now, what would you say? At first it guesses badly. Further down, you see the moment when the right word appears.",
    student: "Each row takes the vectors after one layer, and sends them through the final norm and the output layer at once. The cell shows the likeliest token and, as colour, its probability. The last row is what the model really says.",
    practitioner: "See in which layer an answer is made, and where the model changes its mind. A token that is settled early needs no deep layers; one that appears only in the last is fragile. The curve is the loss that each layer would have.",
    engineer: "softmax(head(norm(x_l))): the final norm's statistics are taken anew at each layer. Rank and surprisal are of the token that stands in the text. The last row is compared with a plain forward pass of the model.",
    researcher: "The logit lens (nostalgebraist 2020). Early rows are a reading aid: nothing taught those layers to be read by this head, and their basis may be rotated. Post-norm models have no stream that one head could read, and are refused.",
  },
  formula: "p_l = softmax(head(norm(x_l)))",
  agrees: "the last row with the model's own output, and its mean surprisal with the loss.",
};
