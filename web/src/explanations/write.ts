import { type Explanation, LEVELS } from "../lib/levels";

export const LABEL: Explanation = {
  question: "Which label does the model give your text?",
  levels: {
    school: "The model reads your text and says which label fits best, and how sure it is of each label.",
    student: "The model reads your text and gives each label a probability; the probabilities sum to 1. The first label is the predicted one. If the text is longer than the context, the model reads only its beginning.",
    practitioner: "The probabilities of all labels show whether the model is uncertain. `glass evaluate` measures how well these probabilities are calibrated.",
    engineer: "The probabilities are the softmax of the class scores of the pooled final vectors, as in `glass classify --json`.",
    researcher: "This is the predictive distribution over all labels. It may be poorly calibrated: `glass evaluate` measures the calibration.",
  },
  formula: "p(label | text) = softmax(W h + b)",
  check: "the probabilities sum to 1, and match `glass classify`.",
};

export const FILL: Explanation = {
  question: "Which tokens fit in place of each mask?",
  levels: {
    school: "Write [MASK] where a word is missing. The model reads the text before and after it, and guesses the word.",
    student: "The candidates for each [MASK] are the likeliest tokens, predicted from the text on both sides. The text above them has the likeliest token in place of each mask.",
    practitioner: "Each mask is filled independently, while the model sees the other masks as masks, so two masks side by side may get tokens that do not fit together.",
    engineer: "The probabilities are the softmax of the logits at the position of the mask, over all text tokens; special tokens are excluded, as in `glass fill`.",
    researcher: "The view shows the marginal distribution of each masked position given all unmasked positions; the joint distribution of several masks is not modelled.",
  },
  formula: "p(xᵢ | unmasked tokens)",
  check: "candidates and probabilities match `glass fill`.",
};

export const WRITE: Explanation = {
  question: "How does the model continue your text?",
  levels: {
    school: "Type something and let the model continue it. It writes one piece after another, each time asking itself what could come next.",
    student: "The model writes one token at a time. With one beam, each token is sampled from the model's probabilities, as changed by the settings; with more beams, beam search looks for the likeliest text.",
    practitioner: "The generation settings are those of `glass generate`: with the same settings and the same seed, a run writes the same text again.",
    engineer: "The model first reads your text, and then generates one token in each forward pass, with cached keys and values. Sampling is in float64.",
    researcher: "With one beam, the text is a sample from the model's distribution, as modified by the settings; the view Sampling shows each stage. With more beams, it is the hypothesis of beam search with the best score.",
  },
  formula: "token ~ p(token | all before it)",
  check: "the text equals that of `glass generate` with these settings and this seed.",
};

/** For chat runs. */
export const CHAT: Explanation = {
  question: "What does the model answer?",
  levels: {
    school: "Ask the model something. It writes an answer piece by piece. For the next question, it reads the conversation again from the beginning.",
    student: "The model reads the conversation as one text and continues it, one token at a time, until it ends the answer or reaches the maximum number of tokens. It has no other memory of the conversation.",
    practitioner: "The conversation is formatted with the run's chat template, as in training and in `glass chat`. When the conversation and the next answer no longer fit in the context, the oldest questions and answers are left out.",
    engineer: "Each answer is encoded separately from the text before it, so that the ids match training. The model first reads the conversation, and then generates one token in each forward pass, with cached keys and values.",
    researcher: "With one beam, the answer is a sample from p(answer | conversation), as modified by the settings. In chat training, only answer tokens, and the end token after each answer, count in the loss: the predictions of question tokens are not trained.",
  },
  formula: "token ~ p(token | conversation, answer so far)",
  check: "the answer equals that of `glass chat` with these settings and this seed.",
};

/** For runs that translate or summarize. */
export const TRANSLATE: Explanation = {
  question: "What does the model write for your text?",
  levels: {
    school: "Type a text. The model reads all of it first, and then writes another text for it, piece by piece. For each piece it looks back at your text.",
    student: "The encoder reads the whole text, up to the context length. Then the decoder writes one token at a time; the probabilities of each token depend on your text and on the tokens written so far.",
    practitioner: "The page generates text with the settings of `glass generate`. With one beam, each token is sampled; with more beams, beam search looks for the likeliest text, which is the usual choice for translation and summarization.",
    engineer: "One pass of the encoder reads the text. Each pass of the decoder generates one token, with cached keys and values; cross-attention reads the encoder's output.",
    researcher: "With one beam, the output is a sample from p(y | x), as modified by the settings; with more beams, it is the hypothesis of beam search with the best score. This score is length-normalized and the search is not exact, so the result need not be the mode of p(y | x).",
  },
  formula: "yᵢ ~ p(yᵢ | y₁ … yᵢ₋₁, x)",
  check: "the text equals that of `glass generate` with these settings and this seed.",
};

const COPY_METER: Explanation["levels"] = {
  school: "Coloured parts are also in the text that the model learned from, and are too long to be there by chance.",
  student: "The shading is a copy meter: the stronger the colour of a passage, the longer its exact match in the training text. Click a passage to see where the match is.",
  practitioner: "Two texts of one language share many short passages. The meter therefore compares the text with held-out text, which the model has not seen: only matches that are long for held-out text count.",
  engineer: "The matches are the maximal runs of whole words that the generated text shares with the training split. The minimum length is such that at most 5% of the held-out text is in matches of this length.",
  researcher: "The copied fraction is (s − h) / (1 − h), with the shares s of this text and h of held-out text in matches of at least the minimum length (compare McCoy et al. 2023): about 0 for held-out text, 1 for a passage of the training text.",
};

/** The explanation with that of the copy meter added, for pages that can search the training text. */
export function withCopyMeter(explanation: Explanation): Explanation {
  const levels = Object.fromEntries(LEVELS.map((level) => [level, `${explanation.levels[level]} ${COPY_METER[level]}`])) as Explanation["levels"];
  return { ...explanation, levels, check: `${explanation.check.slice(0, -1)}; each match occurs in the training text at the position shown.` };
}
