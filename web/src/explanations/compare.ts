import type { Explanation } from "../lib/levels";

export const COMPARE: Explanation = {
  question: "Which parts of a text does one run predict better than another?",
  levels: {
    school: "Two models read the same text. Which one is less surprised by each word? And what would each say next?",
    student: "Surprisal is −ln p of the actual token: small if the run expected the token. In the line of differences, orange parts have a higher surprisal in the second run, and teal parts in the first run. Below are the attention maps of one head of each run.",
    practitioner: "Compare a fine-tuned run with its parent on your own text, or two runs that differ in training time, size or tokenizer. Nats per token are comparable only between runs with the same tokenizer; nats per character are also comparable across tokenizers.",
    engineer: "If the tokenizers differ, the text is split where tokens of both runs end, and the surprisals of the tokens in each part are summed: −ln p of the same characters. Attention maps are subtracted only if both heads have the same query tokens and the same key tokens.",
    researcher: "The differences are log-likelihood ratios of each part of the text. The surprisals of a masked run sum to a negative pseudo-log-likelihood with two-sided context. It is not the negative log-likelihood of the text, and not directly comparable with that of a decoder.",
  },
  formula: "Δ = −ln p₁(part) − (−ln p₂(part))",
  check: "for each run, the surprisal of each part is the sum of the surprisals of its tokens, computed without the other run.",
};
