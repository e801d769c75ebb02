/** What a view keeps of one text means nothing in another. */
import { place } from "./place.svelte";

/** Forget these when the text or the target changes; call it while a component is made. */
export function forgetWithText(...names: string[]): void {
  let text = place.text + place.target;
  $effect(() => {
    const now = place.text + place.target;
    if (now === text) return;
    text = now;
    for (const name of names) delete place.more[name];
  });
}
