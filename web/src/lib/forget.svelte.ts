/** Clears the state of a view that is valid only for one text. */
import { place } from "./place.svelte";

/** Clear these entries when the text or the target changes. Call it when a component is created. */
export function forgetWithText(...names: string[]): void {
  let text = place.text + place.target;
  $effect(() => {
    const now = place.text + place.target;
    if (now === text) return;
    text = now;
    for (const name of names) delete place.more[name];
  });
}
