import type { Words } from "../lib/levels";

export const PROBES: Words = {
  question: "How well does the run answer test questions?",
  depths: {
    school: "An exam for your model: which of two sentences is right? What came after this letter last time? Next to its score you see the score of pure guessing.",
    student: "Each question has one correct answer. The dot is the share of correct answers, the bar its 95 % interval, and the line the score of guessing. A model that was not trained on such texts should be near the line.",
    practitioner: "Every accuracy is shown with its number of questions, its 95 % interval, chance, and the accuracy of simple rules on the same questions. If a simple rule reaches the same score, the score shows no more than that rule.",
    engineer: "Minimal pairs are scored by the log-probability of the tokens that differ; induction and recall by the likeliest token of the whole vocabulary. Questions are made from seed 1, so the same run gets the same scores each time.",
    researcher: "Held-out combinations with attractors, twins that must both be right, random repeats, key–value recall, bracket distance. Wilson intervals take questions as independent; unigram and bigram rules are fitted on the run's own training text.",
  },
  formula: "95 % interval: Wilson score interval of k correct answers out of n",
  agrees: "shares, intervals, chance and rules match `glass probe --json`.",
};
