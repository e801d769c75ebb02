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
    title: "It reads pieces, not words",
    words: "Before anything else, the text is cut into tokens, and each becomes a number. All that the model knows of your text is this row of numbers.",
    attempt: "Change one letter in the text above, and see which tokens change with it. Then type a word that it cannot know.",
  },
  {
    view: "write",
    title: "It answers with probabilities",
    words: "From these numbers it computes how likely each possible answer is. It does not look anything up: what you see is the result of multiplications and additions.",
    attempt: "Let it write, and again with the temperature near 0. What changes, and why does the second text repeat itself?",
    instead: {
      classify: "Type a text that belongs to no label. It must still divide 100 % among them.",
      masked: "Move the [MASK] to another place, and see how its guesses change with what stands on both sides.",
      chat: "Ask a question, and then one that only makes sense after it. Begin a new conversation and ask the second one alone: what is missing?",
      translate: "Translate a short sentence, and then the same one with two words exchanged.",
    },
  },
  {
    view: "attention",
    title: "Tokens attend to one another",
    words: "In each layer every token gathers something from other tokens. A row of this map is one query token: its weights sum to 1.",
    attempt: "Point at the brightest cell of the last row. Then choose another layer: does it attend to the same token?",
  },
  {
    view: "score",
    title: "Why there, and not elsewhere",
    words: "A query meets a key: two lists of numbers are multiplied entry by entry and summed. Softmax makes weights of such scores.",
    attempt: "Find the product that adds most. Then divide all scores by more, or by less: how flat, or how sharp, does the row become?",
  },
  {
    view: "heads",
    title: "Many heads, many habits",
    words: "Several heads look at the same time. Some have a habit that can be measured, such as looking at the token before; the badge says how sure that is, and what chance would give.",
    attempt: "Sort by importance and open the first one. Has what matters most a name?",
  },
  {
    view: "receipt",
    title: "Why this answer: the receipt",
    words: "What a token gets in the end is a sum, and every part of the model has its entry in it. The receipt lists them, and they add up to the very number that comes out.",
    attempt: "Open the head with the longest bar. Which token did it carry that from?",
  },
  {
    view: "lens",
    title: "The answer grows, layer by layer",
    words: "Asked after each layer what it would say now, the model tells how its answer came about: often vague at first, and decided late.",
    attempt: "Find the first layer in which the final answer is on top. Is it earlier for easy tokens?",
  },
  {
    view: "ablation",
    title: "Take something out",
    words: "A bright arrow is not yet a reason. To know whether a part matters, take it away and measure: the loss, the answer, and the text it writes.",
    attempt: "Switch off the head with the longest bar of the receipt. Then switch off one that does nothing, and compare.",
  },
  {
    view: "replay",
    title: "How the model learned",
    words: "None of this was programmed. It began with random numbers, and each step made the right token a little less surprising.",
    attempt: "Press play. Read what it wrote at the first step and at the last, and watch for the moment when the map takes shape.",
  },
  {
    view: "loss",
    title: "What still surprises it",
    words: "The loss is nothing but the mean surprise, and it is not spread evenly: here you see on which tokens it falls.",
    attempt: "Put a word that makes no sense into the middle. How many tokens does the model need to recover?",
  },
  {
    view: "proof",
    title: "Whether to trust it",
    words: "Programs make silent mistakes. Each cell is a promise about this model that was measured, such as: what comes later changes nothing.",
    attempt: "Verify the weights, and read the line “future-blind”. The strip in the head of the page stays with them.",
    instead: {
      classify: "Verify the weights, and read the line “padding-blind”. The strip in the head of the page stays with them.",
      masked: "Verify the weights, and read the line “padding-blind”. The strip in the head of the page stays with them.",
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
