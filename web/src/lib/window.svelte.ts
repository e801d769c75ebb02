/** The visible window of a large attention map: a range of queries and a range of keys, kept in the address. */
import { pageState } from "./page-state.svelte";

/** First position, and the position after the last. */
export type Span = [start: number, stop: number];

/** The window that the server returned. */
export interface ShownWindow {
  queries: Span;
  keys: Span;
  /** Size of the whole map. */
  size: [queries: number, keys: number];
  block: number;
  shape: [rows: number, columns: number];
}

/** Maximum width of a window in which a click opens a single cell; in a wider window, it zooms in. */
export const DETAIL_WIDTH = 64;
const MIN_WIDTH = 16; // of a window after zooming

export class MapWindow {
  #text = pageState.text + pageState.target;

  /** Create it when a component is created. When the text or the target changes, the whole map is shown. */
  constructor() {
    $effect(() => {
      const text = pageState.text + pageState.target;
      if (text === this.#text) return;
      this.#text = text;
      this.whole();
      for (const name of ["q", "k"]) delete pageState.viewState[name];
    });
  }

  /** The ranges for a request; null: all positions. */
  requestedRanges(): { queries: Span | null; keys: Span | null } {
    return { queries: spanOf("queries"), keys: spanOf("keys") };
  }

  whole(): void {
    delete pageState.viewState.queries;
    delete pageState.viewState.keys;
  }

  width({ queries, keys }: ShownWindow): number {
    return Math.max(queries[1] - queries[0], keys[1] - keys[0]);
  }

  isDetailed(shown: ShownWindow): boolean {
    return shown.block === 1 && this.width(shown) <= DETAIL_WIDTH;
  }

  isWhole({ queries, keys, size }: ShownWindow): boolean {
    return queries[1] - queries[0] === size[0] && keys[1] - keys[0] === size[1];
  }

  /** Scale the width of the window by `times`, around a cell or, if the cell is outside the window, around the middle. */
  zoom(shown: ShownWindow, times: number, query: number, key: number): void {
    const span = Math.max(MIN_WIDTH, Math.round(this.width(shown) * times));
    const middle = ([start, stop]: Span, at: number) => (at >= start && at < stop ? at : Math.floor((start + stop) / 2));
    this.#set("queries", middle(shown.queries, query) - span / 2, span, shown.size[0]);
    this.#set("keys", middle(shown.keys, key) - span / 2, span, shown.size[1]);
  }

  /** Move the window by half its width. */
  move(shown: ShownWindow, down: number, across: number): void {
    const by = (this.width(shown) / 2) | 0;
    this.#set("queries", shown.queries[0] + down * by, shown.queries[1] - shown.queries[0], shown.size[0]);
    this.#set("keys", shown.keys[0] + across * by, shown.keys[1] - shown.keys[0], shown.size[1]);
  }

  /** The cell of a query and a key; null if it is outside the window, or none is chosen. */
  cellIn({ queries, keys, block }: ShownWindow, query: number, key: number): [number, number] | null {
    const here = query >= queries[0] && query < queries[1] && key >= keys[0] && key < keys[1];
    return here ? [Math.floor((query - queries[0]) / block), Math.floor((key - keys[0]) / block)] : null;
  }

  #set(name: string, start: number, span: number, length: number): void {
    const first = Math.max(0, Math.min(length - span, Math.round(start)));
    pageState.set(name, `${first}-${Math.min(length, first + span)}`);
  }
}

function spanOf(name: string): Span | null {
  const found = /^(\d{1,7})-(\d{1,7})$/.exec(pageState.string(name, ""));
  return found && [Number(found[1]), Number(found[2])];
}
