/** Which forward pass made the numbers of a view: the field `pass` of an answer, and what is said of it. */
export const PASSES = {
  plain: "These numbers come from one forward pass of the model.",
  observed: "These numbers come from one forward pass of the model, with attention computed step by step so that each step can be kept.",
  recomputed: "The text is too long to keep every score. The rows shown were recomputed by the model's attention from the queries, keys and values of one forward pass.",
  browser: "These numbers come from one forward pass, computed by this page from the model's weights.",
} as const;
export type Pass = keyof typeof PASSES;
