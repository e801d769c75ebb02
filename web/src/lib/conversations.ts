/** Conversations with the runs. They are kept while other views are open, and lost when the page is reloaded. */
import { SvelteMap } from "svelte/reactivity";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export interface Conversation {
  /** Oldest first. */
  messages: readonly Message[];
  /** Number of oldest messages that no longer fit in the context: they are shown, but not sent again. */
  forgotten: number;
}

export const NEW: Conversation = { messages: [], forgotten: 0 };

const held = new SvelteMap<string, Conversation>();

export function conversationWith(run: string): Conversation {
  return held.get(run) ?? NEW;
}

export function keepConversation(run: string, conversation: Conversation): void {
  held.set(run, conversation);
}
