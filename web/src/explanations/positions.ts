import type { Explanation } from "../lib/levels";

/** Effect of each value of the setting `model.positions`. */
export const KINDS: Record<string, string | undefined> = {
  learned: "a learned vector for each position is added to the token's vector",
  sinusoidal: "fixed sine and cosine waves of many lengths are added to the token's vector",
  rotary: "queries and keys are rotated by an angle that grows with the position",
  alibi: "the score of a key decreases with its distance, with a different slope in each head",
  relative: "a learned bias for each range of distances is added to the scores, separately for each head",
  none: "no position information is added",
};

export const POSITIONS: Explanation = {
  question: "How does the model represent token positions?",
  levels: {
    school: "“Dog bites man” is not “man bites dog”. So the model must know the order of the words. Here you see how this model represents the order. Test it: shuffle the words and see whether its answer changes.",
    student: "Attention without a causal mask ignores token order. Most models therefore add position information: as a vector for each position, as a rotation of queries and keys, or as a bias that depends on the distance. The curves show the effect of distance; the shuffle test measures how much the model uses the order.",
    practitioner: "If shuffling hardly changes the answer, the model uses which tokens occur, but not their order. Learned vectors that are similar at large distances, or look like noise at high positions, were probably seldom trained.",
    engineer: "Position vectors are shown as they are added, before any norm. Biases are computed by the model's own module for each distance. The test permutes the token ids of the text (in a decoder, those before the last token; in an encoder-decoder, those of the source), except special tokens. It then runs the model again, and compares the probability of the same answer.",
    researcher: "Depending on the model, the curves are the mean cosine and dot product along diagonals (how far the table is translation invariant), the RoPE kernel for equal q and k, or the ALiBi or T5 bias of each head by distance. The permutation test also gives the KL divergence of the predictions.",
  },
  check: "the shuffle test matches the library's shuffle test with the same seed; the curves match the model's own position vectors, biases or rotations.",
};
