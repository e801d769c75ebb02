import type { Words } from "../lib/levels";

export const COMPARE: Words = {
  question: "Which text does one run predict better than another?",
  depths: {
    school: "Two models read the same text. Which one is less surprised by each word? And what would each say next?",
    student: "Surprisal is −ln p of what really comes: small where a run expected it. Orange parts surprise the second run more, teal ones the first. Below, a head of each looks at the same text.",
    practitioner: "Compare a fine-tuned run with its parent, a longer training, another size or another tokenizer on a text of yours. Means per token are comparable only with the same tokenizer; nats per character always are.",
    engineer: "With two tokenizers the text is cut where a token of both ends, and the nats within are summed: −ln p of the same characters. Maps are subtracted only where both sides have the same tokens.",
    researcher: "Per-stretch log-likelihood ratios on one text. A masked run's numbers are pseudo-log-likelihoods with both sides in sight: no probability of the text, and not to be subtracted from a decoder's without saying so.",
  },
  formula: "Δ = −ln p₂(stretch) − (−ln p₁(stretch))",
  agrees: "each number is that of the same view of each run alone, and the stretches of a run sum to its loss.",
};
