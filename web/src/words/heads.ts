import type { Words } from "../lib/levels";

export const HEADS: Words = {
  question: "What does each head do?",
  depths: {
    school: "The model has many heads, and each looks at your text in its own way: some look at the word before, some at an earlier copy of the same word. Here they are side by side. Click one to enlarge it.",
    student: "Each head of each layer has a small attention map, with queries as rows and keys as columns. Below each map are the head's clearest role, its score, and the score expected by chance.",
    practitioner: "Roles are measured on many texts, not on this one. A head has a role only if the interval of its score lies above chance. Importance is the increase of the loss without the head: a head with a clear role may be unimportant, and an important head may have no role.",
    engineer: "The small maps are max-pooled attention maps of this text. Scores, chance levels and intervals are those of `glass heads` on held-out text. Importance comes from ablating one head at a time.",
    researcher: "Role scores have bootstrap intervals over texts, and analytic or shuffled chance levels. Sort by entropy to find diffuse heads, or by importance to find the heads with the largest effect on the loss. Ablating one head at a time underestimates redundant heads.",
  },
  agrees: "scores, chance levels and intervals match `glass heads`; each map matches the attention map.",
};
