import type { Words } from "../lib/levels";

export const ABLATION: Words = {
  question: "What is each part of the model for?",
  depths: {
    school: "Switch parts of the model off and see what goes wrong. If nothing changes, the part was not needed here. If the text falls apart, it was.",
    student: "Each button is a part: an attention head, a feed-forward layer, the positions or the mask. Switch it off: the loss grows as far as the part mattered, and the next token's probabilities shift.",
    practitioner: "The loss on your text moves at once, the loss on held-out text tells whether it is more than chance. Heads that nobody misses can be pruned: keep writes a smaller run that gives exactly what you see.",
    engineer: "Hooks put zero, a mean, or other attention weights in a part's place in the real forward pass. `glass evaluate --ablate` gives the same loss in the terminal. Off heads are cut out of the weight matrices on keep.",
    researcher: "Zero takes the stream off its distribution; the mean is gentler; the first token is a knock-out of attention; frozen patterns keep later heads from adapting (Olsson et al. 2022). Self-repair hides part of an effect (McGrath et al. 2023).",
  },
  formula: "Δ = loss(without the part) − loss(with everything)",
  agrees: "`glass evaluate RUN --ablate PARTS --instead KIND --tokens N` prints the same loss.",
};
