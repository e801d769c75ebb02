import type { Words } from "../lib/levels";

export const TOKENS: Words = {
  question: "What does the model read?",
  depths: {
    school: "A model does not see letters as you do. Your text is cut into pieces, called tokens, and each piece has a number. The model sees only these numbers.",
    student: "The tokenizer cuts the text into tokens and gives each the number (id) under which the model knows it. Common pieces are one token; rare ones are cut smaller.",
    practitioner: "These are the ids that enter the model, special tokens included. The count says how often the training text has each: what was rare in training is often handled badly.",
    engineer: "encode(text) as the run's own tokenizer.json gives it, with the bytes behind every token. decode(ids) must give the text back; where it does not, the page says so.",
    researcher: "The segmentation with its unigram statistics in the training split: a base for surprisal by frequency, and for anything that compares models with different vocabularies.",
  },
  agrees: "the ids are those of encode(), and decode(ids) gives the text back.",
};
