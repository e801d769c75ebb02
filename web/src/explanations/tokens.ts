import type { Explanation } from "../lib/levels";

export const TOKENS: Explanation = {
  question: "How is the text split into tokens?",
  levels: {
    school: "A model does not see letters as you do. Your text is cut into pieces, called tokens, and each piece has a number. The model sees only these numbers.",
    student: "The tokenizer cuts the text into tokens and gives each token a number, its id. With subword tokenizers, frequent words are often one token, and rare words are split into several.",
    practitioner: "These are the ids of the whole text, including special tokens; ids beyond the context do not enter the model. The count is how often a token occurs in the training text: models often handle rare tokens badly.",
    engineer: "The ids are encode(text) with the run's own tokenizer, and the special tokens that the model reads around the text; the table also lists the bytes of each token. decode(ids) should return the text; if it does not, the page says so.",
    researcher: "The view shows the segmentation of the text with unigram counts from the training split. Both are needed to relate surprisal to frequency, and to compare models with different vocabularies.",
  },
  check: "the ids equal encode(text), apart from special tokens; the view says whether decode(ids) returns the text.",
};
