/** Conversations with the runs, which stay while other views are looked at; a page that is loaded anew has none. */
import { SvelteMap } from "svelte/reactivity";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export interface Conversation {
  /** Oldest first. */
  messages: readonly Message[];
  /** Number of the oldest messages that no longer fit the context: they are shown, and not sent again. */
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
