/** Clears the state of a view that is valid only for one text. */
import { pageState } from "./page-state.svelte";

/** Clear these entries when the text or the target changes. Call it when a component is created. */
export function clearOnTextChange(...names: string[]): void {
  let text = pageState.text + pageState.target;
  $effect(() => {
    const now = pageState.text + pageState.target;
    if (now === text) return;
    text = now;
    for (const name of names) delete pageState.viewState[name];
  });
}
