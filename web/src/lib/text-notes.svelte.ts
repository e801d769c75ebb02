/** Notes of the server on the texts that runs read, such as characters that a tokenizer does not know. */

class TextNotes {
  #latest = $state.raw<Record<string, { text: string; notes: readonly string[] }>>({});

  /** The notes of a run on a text; empty if none have arrived for this text. */
  of(run: string, text: string): readonly string[] {
    const latest = this.#latest[run];
    return latest?.text === text ? latest.notes : [];
  }

  /** Save the notes in the answer to a question about a text. */
  save(run: string, question: object, answer: unknown): void {
    const { text } = question as { text?: unknown };
    const notes = (answer as { text_notes?: string[] } | null)?.text_notes;
    if (typeof text === "string" && notes !== undefined) this.#latest = { ...this.#latest, [run]: { text, notes } };
  }
}

export const textNotes = new TextNotes();
