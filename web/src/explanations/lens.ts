import type { Explanation } from "../lib/levels";

export const LENS: Explanation = {
  question: "In which layer does the answer appear?",
  levels: {
    school: "The model thinks in layers, one after the other. Here we ask after each layer: if you had to answer now, what would you say? At first it usually guesses badly. Further down, you can see in which row its final answer appears.",
    student: "The first row applies the final norm and the output layer directly to the embedding, and each further row applies them to the output of one layer. A cell shows the likeliest token; its colour shows, for example, the probability of this token. The last row is the model's actual output.",
    practitioner: "See in which layer an answer appears, and where the prediction changes. An answer that appears early could be read without the later layers; an answer that appears only in the last row needs all of them. If the text contains the answers, the curve shows the loss that the model would have if it ended after each layer.",
    engineer: "Each row is softmax(head(norm(x_l))): the statistics of the final norm are recomputed for each layer. Rank and surprisal refer to the answer: the actual next token of the text or, where there is none, the model's likeliest answer. If there is a loss, the last row is compared with a plain forward pass of the model, except in a shared file.",
    researcher: "This is the logit lens (nostalgebraist 2020). Read early rows with care: the output layer was not trained on these vectors, which may represent the answer along other directions. A post-norm model has no residual stream to decode, so the lens does not apply to it.",
  },
  formula: "p_l = softmax(head(norm(x_l)))",
  check: "the last row equals the model's own output; if the text contains the answers, its mean surprisal equals the loss.",
};
