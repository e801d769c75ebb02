import type { Words } from "../lib/levels";

export const COMPARE: Words = {
  question: "Which parts of a text does one run predict better than another?",
  depths: {
    school: "Two models read the same text. Which one is less surprised by each word? And what would each say next?",
    student: "Surprisal is −ln p of the actual text: small where a run expected it. Orange parts have a higher surprisal in the second run, teal parts in the first. Below: one attention head of each run on the same text.",
    practitioner: "Compare a fine-tuned run with its parent, or two runs that differ in training length, size or tokenizer, on your own text. Means per token are comparable only with the same tokenizer; nats per character always are.",
    engineer: "With two tokenizers the text is split where tokens of both end, and the nats of each part are summed: −ln p of the same characters. Maps are subtracted only where both sides have the same tokens.",
    researcher: "Log-likelihood ratios per part of one text. A masked run gives pseudo-log-likelihoods with two-sided context: they are not a probability of the text, and not directly comparable with those of a decoder.",
  },
  formula: "Δ = −ln p₂(part) − (−ln p₁(part))",
  agrees: "each number equals that of the run alone, and the parts of a run sum to its loss.",
};
