import type { Words } from "../lib/levels";

export const MACHINES: Words = {
  question: "Three model families, one text: what can each do with it?",
  depths: {
    school: "Three machines learnt from the same sentences. One reads from left to right and goes on writing. One sees the whole sentence and fills in hidden words. One reads a sentence and writes another for it.",
    student: "They differ in the mask: which tokens may attend to which. A decoder attends to earlier tokens only, so it can write. An encoder attends in both directions, so it is better at a hidden word, but cannot write. An encoder-decoder reads one text whole and writes another.",
    practitioner: "Choose a family by the context that it needs: classify and fill with an encoder, continue with a decoder, turn one text into another with both. Click a token to compare the predictions of the first two.",
    engineer: "Same blocks, three masks: full, causal, and full + causal + cross. The masks shown are read from the scores of a real pass (−∞ where hidden), not derived from a rule.",
    researcher: "The encoder's token surprisals are pseudo-log-likelihoods with two-sided context, the decoder's are a factorisation of p(text); their difference at a token is the value of the right context for these two runs. Losses of different tasks are not comparable.",
  },
  formula: "decoder: p(xᵢ | x₁…xᵢ₋₁)   encoder: p(xᵢ | all but xᵢ)   encoder-decoder: p(yᵢ | y₁…yᵢ₋₁, x)",
  agrees: "the decoder's answers do not change with later tokens, and each number equals that of the run alone.",
};
