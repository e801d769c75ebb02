import type { Explanation } from "../lib/levels";

export const PROBES: Explanation = {
  question: "How well does the run answer test questions?",
  levels: {
    school: "An exam for your model: which of two sentences is right? What came after this token last time? Next to its score you see the score of pure guessing.",
    student: "Each question has one correct answer. The dot is the accuracy, the bar its 95 % confidence interval, and the line the accuracy of guessing. A model that was not trained on such texts should be near the line.",
    practitioner: "Each accuracy is shown with the number of questions, its 95 % interval, the chance level, and the accuracy of simple rules on the same questions. If a simple rule is as accurate as the model, the model may have learned no more than that rule.",
    engineer: "Minimal pairs are scored by the log-probability of the tokens from the difference on (in coreference, of those after it); induction and recall by the likeliest token of the whole vocabulary. The questions are generated with seed 1, so the same checkpoint gets the same scores again.",
    researcher: "Agreement and coreference use held-out combinations of words, and also count the groups of twin pairs in which all answers are correct; agreement is also split by number of attractors. Induction uses repeated random tokens, recall uses key–value pairs, and brackets are grouped by distance. Wilson intervals assume independent questions; unigram and bigram rules are fitted to the run's own training text.",
  },
  formula: "95 % interval: Wilson score interval of k correct answers to n questions",
  check: "accuracies, intervals, chance levels and rules match `glass probe RUN --size N --json`, where N is the number of minimal pairs.",
};
