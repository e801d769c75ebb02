/** The window of a large map that is shown: a region of its rows and keys, which stands in the address. */
import { place } from "./place.svelte";

/** First place, and the one after the last. */
export type Span = [start: number, stop: number];

/** What the server says of a window. */
export interface Shown {
  queries: Span;
  keys: Span;
  /** Of the whole map. */
  size: [queries: number, keys: number];
  block: number;
  shape: [rows: number, columns: number];
}

/** Up to so many places a side, single cells can be pointed at. */
export const FINE = 64;
const LEAST = 16;

export class Region {
  #text = place.text + place.target;

  /** Make it while a component is made. Another text has other places: it is shown whole. */
  constructor() {
    $effect(() => {
      const text = place.text + place.target;
      if (text === this.#text) return;
      this.#text = text;
      this.whole();
      for (const name of ["q", "k"]) delete place.more[name];
    });
  }

  /** As the server is asked: null is all. */
  asked(): { queries: Span | null; keys: Span | null } {
    return { queries: spanOf("queries"), keys: spanOf("keys") };
  }

  whole(): void {
    delete place.more.queries;
    delete place.more.keys;
  }

  width({ queries, keys }: Shown): number {
    return Math.max(queries[1] - queries[0], keys[1] - keys[0]);
  }

  isFine(shown: Shown): boolean {
    return shown.block === 1 && this.width(shown) <= FINE;
  }

  isWhole({ queries, keys, size }: Shown): boolean {
    return queries[1] - queries[0] === size[0] && keys[1] - keys[0] === size[1];
  }

  /** So many times as wide, around a cell; around the middle where a place is negative. */
  zoom(shown: Shown, times: number, query: number, key: number): void {
    const span = Math.max(LEAST, Math.round(this.width(shown) * times));
    const middle = ([start, stop]: Span, at: number) => (at >= start && at < stop ? at : Math.floor((start + stop) / 2));
    this.#set("queries", middle(shown.queries, query) - span / 2, span, shown.size[0]);
    this.#set("keys", middle(shown.keys, key) - span / 2, span, shown.size[1]);
  }

  /** Half a window on, in a direction. */
  move(shown: Shown, down: number, across: number): void {
    const by = (this.width(shown) / 2) | 0;
    this.#set("queries", shown.queries[0] + down * by, shown.queries[1] - shown.queries[0], shown.size[0]);
    this.#set("keys", shown.keys[0] + across * by, shown.keys[1] - shown.keys[0], shown.size[1]);
  }

  /** The cell that has a query and a key; null if none is chosen, or it is elsewhere. */
  cellIn({ queries, keys, block }: Shown, query: number, key: number): [number, number] | null {
    const here = query >= queries[0] && query < queries[1] && key >= keys[0] && key < keys[1];
    return here ? [Math.floor((query - queries[0]) / block), Math.floor((key - keys[0]) / block)] : null;
  }

  #set(name: string, start: number, span: number, length: number): void {
    const first = Math.max(0, Math.min(length - span, Math.round(start)));
    place.set(name, `${first}-${Math.min(length, first + span)}`);
  }
}

function spanOf(name: string): Span | null {
  const found = /^(\d{1,7})-(\d{1,7})$/.exec(place.word(name, ""));
  return found && [Number(found[1]), Number(found[2])];
}
