import type { Explanation } from "../lib/levels";

export const HEADS: Explanation = {
  question: "What does each head do?",
  levels: {
    school: "The model has many heads, and each looks at your text in its own way: some look at the word before, some at an earlier copy of the same word. Here they are side by side. Click one to enlarge it.",
    student: "Each head of each layer has a small attention map, with queries as rows and keys as columns. Below each map are the head's clearest role (if the heads are sorted by a role, that role), its score, and the score of a head that attends equally to all visible tokens (chance).",
    practitioner: "Roles are measured on held-out text, on random tokens and, for some corpora, on generated sentences, not on this text. For most roles, a head has the role only if its score reaches a threshold, is several times chance, and has an interval above chance. Importance estimates how much the loss depends on the head: a head with a clear role may be unimportant, and an important head may have no role.",
    engineer: "The small maps are max-pooled attention maps of this text. Scores, chance levels and intervals are those of `glass heads`: on held-out text, on repeated random tokens and, for the corpora with gold relations, on generated sentences. Importance is the absolute gradient of each held-out sequence's loss with respect to a gate on the head, summed over sequences and divided by the number of targets, as in `glass heads --importance`.",
    researcher: "Most role scores have bootstrap intervals over sequences, and the score of uniform attention as chance level. Sort by entropy to find diffuse heads, or by importance to find the heads on which the loss depends most. Importance (Michel et al. 2019) is a first-order estimate: use the view Ablation to measure the loss without a head.",
  },
  check: "scores, chance levels and intervals match `glass heads`; each small map is the attention map of its head, pooled.",
};
