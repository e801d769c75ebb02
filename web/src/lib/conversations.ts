/** Conversations with the runs, which stay while other views are looked at; a page that is loaded anew has none. */
import { SvelteMap } from "svelte/reactivity";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

const held = new SvelteMap<string, readonly Message[]>();

/** The messages of the conversation with a run, oldest first. */
export function conversationWith(run: string): readonly Message[] {
  return held.get(run) ?? [];
}

export function keepConversation(run: string, messages: readonly Message[]): void {
  held.set(run, messages);
}
