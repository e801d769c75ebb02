import type { Words } from "../lib/levels";

export const SAMPLING: Words = {
  question: "How is the next token chosen?",
  depths: {
    school: "The model gives every piece it knows a chance. Then a race is run: pieces with a better chance run faster, and the first to arrive is written. The sliders change how fast each one is.",
    student: "First the model's own probabilities, then each setting in turn: temperature makes them more peaked or flatter; top-k, top-p and min-p remove unlikely tokens. One of the remaining tokens is sampled. The sum is over the whole vocabulary.",
    practitioner: "See the effect of your settings: how many tokens they remove, and how much probability. A low temperature and top-p together often leave one or two tokens, and the text repeats itself.",
    engineer: "Order: repetition penalty, temperature, top-k, top-p, min-p, sampling, all in float64 over all V. Sampling is an exponential race, argmin of E/p, so rounding in one probability affects that token only.",
    researcher: "Exact truncated distributions with entropy at each stage (nats) and truncated mass. The race is Gumbel-max; its random numbers depend only on seed and step. Beam scores use the length penalty of Wu et al. 2016.",
  },
  formula: "p = softmax(z / T) over all V;  token = argmin E / p, E ~ Exp(1);  score = Σ log p / ((5 + n) / 6)^α",
  agrees: "each stage sums to 1 over the whole vocabulary, the sampled token is the first that `glass generate` writes, and scores match its beam search.",
};
