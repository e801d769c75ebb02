import type { Explanation } from "../lib/levels";

export const ABLATION: Explanation = {
  question: "How much does the model need each part?",
  levels: {
    school: "Switch parts of the model off and see what goes wrong. If nothing changes, the part was not needed here. If the text falls apart, it was.",
    student: "Each button switches a part of the model on or off: an attention head, all heads of an attention layer, a feed-forward layer, the positions or the mask. The more the loss grows without a part, the more the model needs the part. The probabilities of the answer change, too.",
    practitioner: "The loss on your text shows the effect at once; classifiers and chat runs do not have this loss. The loss on held-out text shows whether the effect holds beyond your text. Heads without an effect can be pruned: “Save a smaller run” writes a run without them.",
    engineer: "In each forward pass, hooks replace the output of a part by zero or by its mean, or replace the attention weights; if the part is the positions or the mask, they remove it. `glass evaluate --ablate` prints the same loss on held-out text. “Save a smaller run” removes the ablated heads from the weight matrices.",
    researcher: "Zero ablation moves the residual stream off its distribution; mean ablation usually moves it less. Attention to the first token only is an attention knock-out. Frozen patterns keep other heads from adapting (Olsson et al. 2022). Self-repair hides part of an effect (McGrath et al. 2023).",
  },
  formula: "Δ = loss(without the part) − loss(full model)",
  check: "`glass evaluate RUN --ablate PARTS --instead KIND --tokens N` prints the same loss on held-out text.",
};
