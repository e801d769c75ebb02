import type { Words } from "../lib/levels";

/** What each kind of positions does. */
export const KINDS: Record<string, string | undefined> = {
  learned: "a learned vector for each position is added to the token's",
  sinusoidal: "fixed waves of many lengths are added to the token's vector",
  rotary: "queries and keys are rotated by an angle that grows with the position",
  alibi: "scores of far keys are lowered, each head at its own slope",
  relative: "a learned number for the distance is added to each head's scores",
  none: "no position information is added",
};

export const POSITIONS: Words = {
  question: "How does the model represent token positions?",
  depths: {
    school: "“Dog bites man” is not “man bites dog”. So the model must know the order of the words. Here you see how this one keeps it, and you can test it: shuffle the words and see whether its answer changes.",
    student: "Attention alone ignores token order. Positions add it: as a vector for each position, as a rotation of queries and keys, or as a bias by distance. The curves show the effect of distance; the shuffle test measures the model's use of order.",
    practitioner: "If shuffling hardly changes the answer, the model uses which words occur, not their order. Learned vectors that are similar at large distances, or look like noise at high positions, were seldom trained.",
    engineer: "The vectors as they are added, before any norm. Biases come from the model's own module for each distance. The test permutes the token ids, except special tokens, and reruns the model; it compares the probability of the same answer.",
    researcher: "The mean cosine or dot product along diagonals (how far the table is translation invariant), the kernel of RoPE for aligned q and k, ALiBi slopes, T5 buckets; and a permutation test, with the KL divergence of the predictions.",
  },
  agrees: "the shuffle test matches the library's permutation test with the same seed; the curves match the model's own tables.",
};
