import type { Words } from "../lib/levels";

export const COMPARE: Words = {
  question: "Which parts of a text does one run predict better than another?",
  depths: {
    school: "Two models read the same text. Which one is less surprised by each word? And what would each say next?",
    student: "Surprisal is −ln p of the actual token: small if the run expected the token. Parts of the text in orange have a higher surprisal in the second run, and parts in teal in the first. Below are the attention maps of one head of each run.",
    practitioner: "Compare a fine-tuned run with its parent on your own text, or two runs that differ in training length, size or tokenizer. Nats per token are comparable only between runs with the same tokenizer; nats per character are also comparable across tokenizers.",
    engineer: "If the tokenizers differ, the text is split where tokens of both runs end, and the surprisals of the tokens in each part are summed: −ln p of the same characters. Attention maps are subtracted only if both runs have the same tokens.",
    researcher: "The differences are log-likelihood ratios of each part of the text. A masked run gives pseudo-log-likelihoods with two-sided context. They are not a probability of the text, and not directly comparable with the log-likelihoods of a decoder.",
  },
  formula: "Δ = −ln p₂(part) − (−ln p₁(part))",
  agrees: "each surprisal equals that computed from the run alone, and the surprisals of a run sum to its total loss on the text.",
};
