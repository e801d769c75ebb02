import type { Words } from "../lib/levels";

export const HEADS: Words = {
  question: "What does each head do?",
  depths: {
    school: "The model has many heads, and each looks at your text in its own way: some at the word before, some at the same word earlier. Here they all are, side by side. Click one to see it large.",
    student: "One small map for each head of each layer, rows above columns as in the large one. The badge names what the head does most clearly, its score, and what a head that looks anywhere would score by chance.",
    practitioner: "Roles are measured on many texts, not on this one. A role counts only when its interval lies above chance. Importance is how much the loss rises without the head: a clear role need not matter, and what matters need not have a name.",
    engineer: "The thumbnails are max-pooled maps of this text. Scores, chance levels and intervals come from the survey of `glass heads`, on held-out text; importance from taking each head out in turn.",
    researcher: "Role scores with bootstrap intervals over texts and analytic or shuffled chance levels. Sort by entropy for diffuse heads, by importance for what the loss depends on; single-head ablation understates heads that stand in for one another.",
  },
  agrees: "scores, chance and intervals are those of `glass heads`; each map is that of the attention map.",
};
