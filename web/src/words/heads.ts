import type { Words } from "../lib/levels";

export const HEADS: Words = {
  question: "What does each head do?",
  depths: {
    school: "The model has many heads, and each looks at your text in its own way: some at the word before, some at the same word earlier. Here they all are, side by side. Click one to see it large.",
    student: "One small map for each head of each layer, with queries as rows and keys as columns. The badge shows the head's clearest role, its score, and the score expected by chance.",
    practitioner: "Roles are measured on many texts, not on this one. A role counts only when its interval lies above chance. Importance is how much the loss rises without the head: a head with a clear role may be unimportant, and an important head may have no role.",
    engineer: "The thumbnails are max-pooled maps of this text. Scores, chance levels and intervals come from the survey of `glass heads`, on held-out text; importance from ablating each head in turn.",
    researcher: "Role scores with bootstrap intervals over texts and analytic or shuffled chance levels. Sort by entropy for diffuse heads, by importance for heads with the largest effect on the loss; single-head ablation underestimates redundant heads.",
  },
  agrees: "scores, chance levels and intervals match `glass heads`; each map matches the attention map.",
};
