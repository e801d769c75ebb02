import type { Words } from "../lib/levels";

/** What each kind of positions does. */
export const KINDS: Record<string, string | undefined> = {
  learned: "a learned vector for each position is added to the token's",
  sinusoidal: "fixed waves of many lengths are added to the token's vector",
  rotary: "queries and keys are rotated by an angle that grows with the position",
  alibi: "scores of far keys are lowered, each head at its own slope",
  relative: "a learned number for the distance is added to each head's scores",
  none: "nothing tells the model where a token stands",
};

export const POSITIONS: Words = {
  question: "How does the model know where a token stands?",
  depths: {
    school: "“Dog bites man” is not “man bites dog”. So the model must know the order of the words. Here you see how this one keeps it, and you can test it: shuffle the words and see whether its answer changes.",
    student: "Attention alone sees a bag of tokens. Positions add order: as vectors for each position, as a rotation of queries and keys, or as a bias by distance. The curves show what distance does; the shuffle test asks the model itself.",
    practitioner: "If shuffling hardly changes the answer, the model goes by which words there are, not by their order. Learned vectors that look alike at far distances, or like noise at high positions, were seldom trained.",
    engineer: "The vectors as they are added, before any norm. Biases are what the model's own module gives for a distance. The test permutes token ids, special ones excepted, and reruns the model; the answer stays the same one.",
    researcher: "The mean cosine or dot product along diagonals (how far the table is translation invariant), the kernel of RoPE for aligned q and k, ALiBi slopes, T5 buckets; and a permutation test, with the KL divergence of the predictions.",
  },
  agrees: "the shuffle test's numbers with the library's permutation test of the same seed; the curves with the model's own tables.",
};
