import type { Words } from "../lib/levels";

export const TOKENS: Words = {
  question: "How is the text split into tokens?",
  depths: {
    school: "A model does not see letters as you do. Your text is cut into pieces, called tokens, and each piece has a number. The model sees only these numbers.",
    student: "The tokenizer cuts the text into tokens and gives each token a number, its id. Common pieces are one token; rare ones are split further.",
    practitioner: "These are the ids that enter the model, special tokens included. The count shows how often each token occurs in the training text: rare tokens are often handled badly.",
    engineer: "encode(text) of the run's own tokenizer.json, with the bytes of every token. decode(ids) must return the text; where it does not, the page reports it.",
    researcher: "The segmentation with its unigram statistics in the training split: a base for surprisal by frequency, and for anything that compares models with different vocabularies.",
  },
  agrees: "the ids equal encode(text), and decode(ids) returns the text.",
};
