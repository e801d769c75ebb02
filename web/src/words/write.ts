import { LEVELS, type Words } from "../lib/levels";

export const LABEL: Words = {
  question: "Which label does the model give your text?",
  depths: {
    school: "The model reads the whole text and says which kind it is, and how sure it is of each kind.",
    student: "The model reads the text whole and gives each label a probability; together they are 1. The first is the predicted label.",
    practitioner: "Probabilities of all labels, not only of the likeliest: see where the model is uncertain. `glass evaluate` measures how well these probabilities are calibrated.",
    engineer: "softmax over the classes' scores of the pooled last vectors, in float64, as `glass classify --json` prints it.",
    researcher: "The predictive distribution of the head over all classes. It is uncalibrated unless the evaluation says otherwise.",
  },
  formula: "p(label | text) = softmax(W h + b)",
  agrees: "the probabilities sum to 1, and match `glass classify`.",
};

export const FILL: Words = {
  question: "Which tokens fit in the holes?",
  depths: {
    school: "Write [MASK] where a word is missing. The model reads the text before and after it, and guesses the word.",
    student: "For each [MASK] the likeliest tokens with their probabilities, from both sides of the hole. The text above the candidates has the likeliest token in each hole.",
    practitioner: "Each hole is filled while the others are still open: two holes side by side may get tokens that do not fit together.",
    engineer: "softmax of the logits at the mask's position over all text tokens; special tokens are excluded, as in `glass fill`.",
    researcher: "Marginals of each masked position given all unmasked ones; the joint distribution of several holes is not modelled.",
  },
  formula: "p(xᵢ | unmasked tokens)",
  agrees: "candidates and probabilities match `glass fill`.",
};

export const WRITE: Words = {
  question: "How does the model continue your text?",
  depths: {
    school: "Type something and let the model go on. It writes one piece after another, each time asking itself what could come next.",
    student: "The model writes one token at a time; each is sampled from its probabilities.",
    practitioner: "The run's own task with the settings of `glass generate`: with the same seed, a run writes the same text again.",
    engineer: "One pass reads the text; then one token at a time, with cached keys and values. Each is sampled in float64.",
    researcher: "A sample of the model's own distribution, as the settings modify it; the Sampling view shows each stage.",
  },
  formula: "token ~ p(token | all before it)",
  agrees: "the text equals that of `glass generate` with these settings and this seed.",
};

/** Of runs that answer in a conversation. */
export const CHAT: Words = {
  question: "What does the model answer?",
  depths: {
    school: "Ask the model something. It writes an answer piece by piece, and for the next question it reads the whole conversation again.",
    student: "The model reads the conversation as one text and continues it, one token at a time, until it ends the answer. It has no other memory of the conversation.",
    practitioner: "The conversation is written with the run's chat template, as in training and in `glass chat`. When it no longer fits the context, the oldest question and answer are left out.",
    engineer: "Each answer is encoded separately from the text before it, so the ids match training. One pass reads them; then one token at a time, with cached keys and values.",
    researcher: "A sample of p(answer | conversation). Only answer tokens, and the end token after each answer, counted in the loss; predictions inside a question were never trained.",
  },
  formula: "token ~ p(token | conversation, answer so far)",
  agrees: "the answer equals that of `glass chat` with these settings and this seed.",
};

/** Of runs that read one text and write another. */
export const TURN: Words = {
  question: "What does the model write for your text?",
  depths: {
    school: "Type a text. The model reads all of it first, and then writes another one for it, piece by piece. For each piece it looks back at yours.",
    student: "The encoder reads the whole text. Then the decoder writes one token at a time, and each depends on your text and on what is written so far.",
    practitioner: "The run's own task with the settings of `glass generate`. With one beam each token is sampled; more beams look for the likeliest text, which is the usual choice here.",
    engineer: "The text is encoded once. The decoder runs one token at a time with cached keys and values, and cross-attention reads the encoder's last vectors.",
    researcher: "A sample of p(y | x), or the hypothesis of beam search with the best score. The score is length-normalised, and the search is not exact, so the result need not be the mode.",
  },
  formula: "yᵢ ~ p(yᵢ | y₁ … yᵢ₋₁, x)",
  agrees: "the text equals that of `glass generate` with these settings and this seed.",
};

const METER: Words["depths"] = {
  school: "Coloured parts are copied: exactly these words occur in the text that it learnt from.",
  student: "The shading is a copy meter: the darker a passage, the longer its exact match in the training text. Click it to see where.",
  practitioner: "Long shaded passages mean that the model recites. Short ones occur in any two texts of the same kind.",
  engineer: "Matches are all maximal common substrings with the training split, found by a suffix automaton of the sample.",
  researcher: "Shaded: verbatim overlap with the training split at character level, all maximal matches above the threshold. Memorisation needs a base rate: compare with overlaps of held-out text of equal length.",
};

/** The same, and what the copy meter says: where the training text is at hand. */
export function withMeter(words: Words): Words {
  const depths = Object.fromEntries(LEVELS.map((level) => [level, `${words.depths[level]} ${METER[level]}`])) as Words["depths"];
  return { ...words, depths, agrees: `${words.agrees.slice(0, -1)}; each match occurs in the training text at the position shown.` };
}
