import type { Explanation } from "../lib/levels";

export const MACHINES: Explanation = {
  question: "What can each of three model families do with the same text?",
  levels: {
    school: "Three models read the same text. One reads from left to right and continues it. One sees all of it and fills in hidden words. One reads all of it and writes another text for it.",
    student: "The families differ in the mask, which determines the tokens that a token may attend to. In a decoder, a token attends only to itself and to earlier tokens, so a decoder can generate text. An encoder attends in both directions, so it can use the words on both sides of a hidden word, but cannot generate text. An encoder-decoder reads the whole of one text and generates another.",
    practitioner: "Choose a family by its task: an encoder to classify a text or to predict masked tokens, a decoder to continue a text, an encoder-decoder to turn one text into another. Click a token to compare the predictions of the decoder and the encoder.",
    engineer: "The families differ mainly in their masks: causal in a decoder, not causal in an encoder. An encoder-decoder has both, and its decoder blocks have cross-attention, in which no source token is masked. The masks shown are read from the scores of a forward pass (−∞ where masked), not derived from a rule.",
    researcher: "The encoder's token surprisals are pseudo-log-likelihoods with two-sided context; those of the decoder sum to −ln p(text | its first token). The difference at a token shows how much the encoder gains from two-sided context, for these two runs. Losses of different tasks are not comparable.",
  },
  formula: "decoder: p(xᵢ | x₁…xᵢ₋₁)\nencoder: p(xᵢ | all but xᵢ)\nencoder-decoder: p(yᵢ | y₁…yᵢ₋₁, x)",
  check: "the decoder's predictions do not change with later tokens, and each number is the same as without the other two runs.",
};
