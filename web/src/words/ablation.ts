import type { Words } from "../lib/levels";

export const ABLATION: Words = {
  question: "How much does the model need each part?",
  depths: {
    school: "Switch parts of the model off and see what goes wrong. If nothing changes, the part was not needed here. If the text falls apart, it was.",
    student: "Each button is a part: an attention head, a feed-forward layer, the positions or the mask. Switch it off: the more the loss grows, the more the part matters. The probabilities of the next token change, too.",
    practitioner: "The loss on your text changes at once; the loss on held-out text shows whether the effect is more than chance. Heads without an effect can be pruned: keep writes a smaller run with exactly the same results.",
    engineer: "Hooks replace a part by zero, its mean, or other attention weights in the real forward pass. `glass evaluate --ablate` gives the same loss in the terminal. Keep removes the disabled heads from the weight matrices.",
    researcher: "Zero moves the residual stream off its distribution; the mean is gentler; the first token alone is an attention knock-out; frozen patterns keep later heads from adapting (Olsson et al. 2022). Self-repair hides part of an effect (McGrath et al. 2023).",
  },
  formula: "Δ = loss(without the part) − loss(full model)",
  agrees: "`glass evaluate RUN --ablate PARTS --instead KIND --tokens N` prints the same loss.",
};
