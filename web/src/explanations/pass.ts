/** What the page says about each value of the field `pass`: the forward pass that gave the numbers of a view. */
export const PASSES = {
  plain: "The vectors of all layers come from one forward pass of the model.",
  observed: "These numbers come from one forward pass of the model, with attention computed step by step so that each step can be recorded.",
  recomputed: "The text is too long to store all scores. For the rows shown, the attention weights were computed again from the queries and keys of one forward pass.",
  browser: "These numbers come from one forward pass, computed by this page from the model's weights.",
} as const;
export type Pass = keyof typeof PASSES;
