/** The tour: through the views in the order in which they are understood, each with something to try. */
import type { ViewEntry } from "../views";
import type { Run } from "./api";

type Task = Run["task"];

export interface Stop {
  /** The view that it opens. */
  view: string;
  title: string;
  words: string;
  /** Something concrete to do there. */
  attempt: string;
  /** The same for runs of these tasks, where it is another thing to do. */
  instead?: Partial<Record<Task, string>>;
  /** What of the view's state is set on arrival. */
  more?: Record<string, string | number>;
}

export const STOPS: readonly Stop[] = [
  {
    view: "tokens",
    title: "The model reads tokens",
    words: "First the text is split into tokens, and each becomes a number. The model sees only this sequence of numbers.",
    attempt: "Change one letter in the text above, and see which tokens change. Then type a word that is not in the training text.",
  },
  {
    view: "write",
    title: "The output is probabilities",
    words: "From these numbers the model computes the probability of each possible answer. It does not look anything up: the result comes from multiplications and additions.",
    attempt: "Let it write, then again with a temperature near 0. What changes, and why does the second text repeat itself?",
    instead: {
      classify: "Type a text that fits no label. The probabilities still sum to 100 %.",
      masked: "Move the [MASK] to another position, and see how the predictions change with the context on both sides.",
      chat: "Ask a question, and then one that only makes sense after it. Begin a new conversation and ask the second one alone: what is missing?",
      translate: "Translate a short sentence, and then the same one with two words exchanged.",
    },
  },
  {
    view: "attention",
    title: "Tokens attend to one another",
    words: "In each layer every token reads information from other tokens. A row of this map is one query token: its weights sum to 1.",
    attempt: "Point at the brightest cell of the last row. Then choose another layer: does it attend to the same token?",
  },
  {
    view: "score",
    title: "How one weight is computed",
    words: "The query and the key, two lists of numbers, are multiplied entry by entry and summed. Softmax turns these scores into weights.",
    attempt: "Find the largest product. Then divide all scores by a larger or a smaller number: does the row become flatter or sharper?",
  },
  {
    view: "heads",
    title: "Heads have different roles",
    words: "Each layer has several heads. Some have a role that can be measured, such as attending to the previous token; the badge shows the score with its interval, and the chance level.",
    attempt: "Sort by importance and open the first one. Does the most important head have a role?",
  },
  {
    view: "receipt",
    title: "The receipt: why this answer",
    words: "A token's logit is a sum with one entry for every part of the model. The receipt lists the entries; they add up to the model's own logit.",
    attempt: "Open the head with the longest bar. Which token contributes most?",
  },
  {
    view: "lens",
    title: "The answer, layer by layer",
    words: "The lens shows the prediction after each layer: often uncertain in the first layers, and decided in the last ones.",
    attempt: "Find the first layer in which the final answer is on top. Is it earlier for easy tokens?",
  },
  {
    view: "ablation",
    title: "Remove a part",
    words: "A large attention weight does not prove that a part matters. Remove the part and measure the change of the loss, the answer, and the text that it writes.",
    attempt: "Switch off the head with the longest bar of the receipt. Then switch off one that does nothing, and compare.",
  },
  {
    view: "replay",
    title: "How the model learnt",
    words: "None of this was programmed. Training starts from random weights, and each step makes the correct token a little more likely.",
    attempt: "Press play. Compare the generated text at the first and the last step, and find the step at which the attention map gets its pattern.",
  },
  {
    view: "loss",
    title: "Tokens with a high loss",
    words: "The loss is the mean surprisal over all tokens. This view shows which tokens have a high surprisal, and which have a low one.",
    attempt: "Put a word that does not fit into the middle. After how many tokens is the surprisal low again?",
  },
  {
    view: "proof",
    title: "Check the computation",
    words: "Errors in a program can go unnoticed. Each cell is a property of this model that was measured, for example: later tokens do not change earlier predictions.",
    attempt: "Verify the weights, and read the line “future-blind”. The strip at the top of the page shows the result.",
    instead: {
      classify: "Verify the weights, and read the line “padding-blind”. The strip at the top of the page shows the result.",
      masked: "Verify the weights, and read the line “padding-blind”. The strip at the top of the page shows the result.",
    },
  },
];

/** Those that a run has something to show at, of the views that there are. */
export function stopsFor(run: Run, views: readonly ViewEntry[]): Stop[] {
  const fitting = new Set(views.filter((view) => !view.missing?.(run)).map((view) => view.name));
  return STOPS.filter((stop) => fitting.has(stop.view));
}

/** What to try there with a run. */
export function attemptOf(stop: Stop, run: Run): string {
  return stop.instead?.[run.task] ?? stop.attempt;
}
