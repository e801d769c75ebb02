import type { Words } from "../lib/levels";

export const PROBES: Words = {
  question: "What does the run know?",
  depths: {
    school: "An exam for your model: which of two sentences is right? What came after this letter last time? Beside its score stands the score of pure guessing.",
    student: "Each question has a right answer that the model gives or misses. The dot is its share of right answers, the bar the uncertainty, and the line the score of guessing. A model that never learnt from such texts should be near the line.",
    practitioner: "Every accuracy stands beside its number of questions, its 95 % interval, chance, and what simple rules get on the same questions. A score that a rule reaches too shows no more than the rule.",
    engineer: "Minimal pairs are scored by the log-probability of the tokens that differ; induction and recall by the likeliest token of the whole vocabulary. Questions are made from seed 1, so the same run gets the same marks each time.",
    researcher: "Held-out combinations with attractors, twins that must both be right, random repeats, key–value recall, bracket distance. Wilson intervals take questions as independent; unigram and bigram rules are fitted on the run's own training text.",
  },
  formula: "95 % interval: Wilson's, of right out of n",
  agrees: "shares, intervals, chance and rules are those of `glass probe --json`.",
};
