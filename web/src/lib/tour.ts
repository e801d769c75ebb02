/** The tour through the views, from the simplest to the most advanced, with something to try at each. */
import type { ViewEntry } from "../views";
import type { Run } from "./api";

type Task = Run["task"];

export interface Stop {
  /** Name of the view. */
  view: string;
  title: string;
  explanation: string;
  /** Something to try in the view. */
  attempt: string;
  /** Other things to try, for runs of these tasks. */
  taskAttempts?: Partial<Record<Task, string>>;
  /** State of the view to set. */
  viewState?: Record<string, string | number>;
}

export const STOPS: readonly Stop[] = [
  {
    view: "tokens",
    title: "The model reads tokens",
    explanation: "First the text is split into tokens, and each token becomes a number. The model sees only this sequence of numbers.",
    attempt: "Change one letter in the text above, and see which tokens change. Then type a word that is not in the training text.",
  },
  {
    view: "write",
    title: "The output is probabilities",
    explanation: "From these numbers the model computes the probability of each possible answer. It does not look up any text: the result is computed from the input and from the model's weights.",
    attempt: "Let the model write once, and then again with a temperature near 0. What changes? Does the second text repeat itself, and why?",
    taskAttempts: {
      classify: "Type a text that fits no label. Do the probabilities still sum to 100 %?",
      masked: "Move the [MASK] to another position, and see how the predictions change with the context on both sides.",
      chat: "Ask a question, and then a second one that makes sense only after the first. Begin a new conversation and ask only the second question: what is missing?",
      translate: "Translate a short sentence, and then the same sentence with two words exchanged.",
    },
  },
  {
    view: "attention",
    title: "Tokens attend to one another",
    explanation: "In each layer, a token can read information from all tokens that the mask allows. A row of this map is one query token: its weights sum to 1.",
    attempt: "Point at the cell with the strongest colour in the last row. Then choose another head: does it attend to the same token?",
  },
  {
    view: "score",
    title: "How one weight is computed",
    explanation: "The query and the key, two lists of numbers, are multiplied entry by entry. The sum of the products, scaled, is the score of the key. Softmax turns the scores of a row into weights.",
    attempt: "Find the largest product. Then divide all scores by a larger or a smaller number: does the row become flatter or more peaked?",
  },
  {
    view: "heads",
    title: "Heads have different roles",
    explanation: "A layer can have several heads. Some have a role that can be measured, such as attending to the previous token. If the roles were measured, the score of the head's clearest role, its interval and the chance level are below each map.",
    attempt: "Sort by importance or, if it is not available, by entropy. Then look at the first head: does it have a role?",
  },
  {
    view: "receipt",
    title: "The receipt: why this answer",
    explanation: "A token's logit is the sum of one contribution from every part of the model. The receipt lists the contributions; they add up to the model's own logit.",
    attempt: "Open the head with the longest bar. Which token contributes most?",
  },
  {
    view: "lens",
    title: "The answer, layer by layer",
    explanation: "The lens shows the prediction after each layer: often uncertain in the first layers, and decided in the last ones.",
    attempt: "Find the first layer that already gives the final answer. Is this layer earlier for easy tokens?",
  },
  {
    view: "ablation",
    title: "Remove a part",
    explanation: "A large attention weight does not prove that a part matters. Remove the part, and measure how the loss, the answer and the generated text change.",
    attempt: "Switch off the head with the longest bar in the receipt. Then switch off a head with a short bar, and compare.",
  },
  {
    view: "replay",
    title: "How the model learned",
    explanation: "None of this was programmed. Training usually starts from random weights, and step by step it makes the correct answers more likely.",
    attempt: "Press play. Compare the first and the last step: how has the loss changed? If the run has snapshots, find the step at which the attention map gets its pattern.",
  },
  {
    view: "loss",
    title: "Tokens with a high loss",
    explanation: "The loss is the mean surprisal over all tokens. This view shows which tokens have a high surprisal, and which have a low one.",
    attempt: "Insert an unexpected word in the middle of the text. After how many tokens is the surprisal low again?",
  },
  {
    view: "verification",
    title: "Check the computation",
    explanation: "Errors in a program can go unnoticed. Each square is a check of one property of this model, for example that padding does not change the predictions.",
    attempt: "Verify the weights, and read the line “future-blind”. The strip at the top of the page shows the results.",
    taskAttempts: {
      classify: "Verify the weights, and read the line “padding-blind”. The strip at the top of the page shows the results.",
      masked: "Verify the weights, and read the line “padding-blind”. The strip at the top of the page shows the results.",
    },
  },
];

/** The stops whose views are available and apply to a run. */
export function stopsFor(run: Run, views: readonly ViewEntry[]): Stop[] {
  const fitting = new Set(views.filter((view) => !view.unavailable?.(run)).map((view) => view.name));
  return STOPS.filter((stop) => fitting.has(stop.view));
}

/** What to try at a stop with a run. */
export function attemptOf(stop: Stop, run: Run): string {
  return stop.taskAttempts?.[run.task] ?? stop.attempt;
}
