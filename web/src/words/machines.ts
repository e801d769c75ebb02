import type { Words } from "../lib/levels";

export const MACHINES: Words = {
  question: "Three families, one text: what can each do with it?",
  depths: {
    school: "Three machines learnt from the same sentences. One reads from left to right and goes on writing. One sees the whole sentence and fills in hidden words. One reads a sentence and writes another for it.",
    student: "What differs is the mask: who may look at whom. A decoder looks back only, so it can write. An encoder looks both ways, so it is better at a hidden word, but cannot write. An encoder-decoder reads one text whole and writes another.",
    practitioner: "Choose a family by what it must see: classify and fill with an encoder, continue with a decoder, turn one text into another with both. Click a token to compare what the first two would put there.",
    engineer: "Same blocks, three masks: full, causal, and full + causal + cross. The masks shown are read from the scores of a real pass (−∞ where hidden), not drawn from a rule.",
    researcher: "The encoder's per-token costs are pseudo-log-likelihoods with two-sided context, the decoder's are a factorisation of p(text); their gap at a token is what the right context is worth to these two runs. Losses of different tasks are not comparable.",
  },
  formula: "decoder: p(xᵢ | x₁…xᵢ₋₁)   encoder: p(xᵢ | all but xᵢ)   encoder-decoder: p(yᵢ | y₁…yᵢ₋₁, x)",
  agrees: "no answer of the decoder changes with what comes after it, and each number is that of the run alone.",
};
