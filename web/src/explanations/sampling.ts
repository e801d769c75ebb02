import type { Explanation } from "../lib/levels";

export const SAMPLING: Explanation = {
  question: "How is the next token chosen?",
  levels: {
    school: "The model gives every piece it knows a chance. Then a race is run: each piece gets a track of random length, pieces with a better chance run faster, and the first to arrive is written. The sliders change how fast each piece runs.",
    student: "The table begins with the model's own probabilities and then applies each setting that is on, in turn. Temperature makes them more peaked or flatter; top-k, top-p and min-p remove unlikely tokens. One of the remaining tokens is sampled. Each sum is over the whole vocabulary.",
    practitioner: "See the effect of your settings: how many tokens they remove, and how much probability. A low temperature together with top-p often leaves only one or two tokens, so that the text repeats itself.",
    engineer: "The order is repetition penalty, temperature, top-k, top-p, min-p, sampling; all steps after the logits are in float64, over all V tokens. Sampling is an exponential race, argmin of E/p, so a rounding error in one probability affects only that token.",
    researcher: "The table describes the exact distribution after each filter: its entropy (nats) and the removed mass. The race is equivalent to the Gumbel-max trick; its random numbers depend only on the seed and the step. Beam scores use the length penalty of Wu et al. 2016.",
  },
  formula: "p = softmax(z / T) over all V;  token = argmin E / p, E ~ Exp(1);  score = Σ log p / ((5 + n) / 6)^α",
  check: "each stage sums to 1 over the whole vocabulary; without a target, the sampled token is the first token that `glass generate` writes with these settings; the scores match its beam search.",
};
