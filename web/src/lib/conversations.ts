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

export const EMPTY_CONVERSATION: Conversation = { messages: [], forgotten: 0 };

const conversations = new SvelteMap<string, Conversation>();

export function conversationWith(run: string): Conversation {
  return conversations.get(run) ?? EMPTY_CONVERSATION;
}

export function saveConversation(run: string, conversation: Conversation): void {
  conversations.set(run, conversation);
}
