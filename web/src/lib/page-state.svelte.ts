/** The state of the page, which is kept in its address, so that a link opens the same view. */
import type { Level } from "./levels";
import { LEVELS } from "./levels";

export type Theme = "system" | "light" | "dark";

const FIRST_VIEW = "write";

class PageState {
  view = $state(FIRST_VIEW);
  run = $state("");
  /** The text that the model reads. */
  text = $state("");
  /** The given target of a translation or summary; "": the run generates it. */
  target = $state("");
  level = $state<Level>("student");
  theme = $state<Theme>("system");
  /** State of single views, such as `layer`, `head` and `place`. */
  viewState = $state<Record<string, string>>({});

  constructor() {
    this.#read();
    window.addEventListener("popstate", () => this.#read());
    window.addEventListener("hashchange", () => this.#read());
  }

  /** Open a view with some of its state; the browser's back button returns. */
  go(view: string, viewState: Record<string, string | number> = {}): void {
    this.view = view;
    for (const [name, value] of Object.entries(viewState)) this.viewState[name] = String(value);
    history.pushState(null, "", this.address());
  }

  /** The whole number that a view keeps under this name; `otherwise` if there is none. */
  number(name: string, otherwise: number): number {
    const value = Number.parseInt(this.viewState[name] ?? "", 10);
    return Number.isNaN(value) ? otherwise : value;
  }

  /** The text that a view keeps under this name; `otherwise` if there is none. */
  string<S extends string>(name: string, otherwise: S): S {
    return (this.viewState[name] as S | undefined) ?? otherwise;
  }

  set(name: string, value: string | number): void {
    this.viewState[name] = String(value);
  }

  /** The address of the current state. */
  address(): string {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries({ run: this.run, text: this.text, target: this.target })) {
      if (value !== "") parameters.set(name, value);
    }
    if (this.level !== "student") parameters.set("level", this.level);
    if (this.theme !== "system") parameters.set("theme", this.theme);
    for (const [name, value] of Object.entries(this.viewState)) parameters.set(`.${name}`, value);
    return `#${this.view}?${parameters}`;
  }

  /** Keep the address up to date; call it when a component is created. */
  syncAddress(): void {
    $effect(() => {
      const address = this.address();
      if (address !== location.hash) history.replaceState(null, "", address);
    });
  }

  #read(): void {
    const [view, query] = location.hash.slice(1).split("?", 2);
    const given = new URLSearchParams(query ?? "");
    this.view = view || FIRST_VIEW;
    const run = given.get("run") ?? this.run;
    this.text = given.get("text") ?? (run === this.run ? this.text : ""); // another run starts with its own prompt
    this.run = run;
    this.target = given.get("target") ?? "";
    this.level = LEVELS.find((level) => level === given.get("level")) ?? "student";
    this.theme = (["light", "dark"] as const).find((theme) => theme === given.get("theme")) ?? "system";
    this.viewState = Object.fromEntries([...given].filter(([name]) => name.startsWith(".")).map(([n, v]) => [n.slice(1), v]));
  }
}

export const pageState = new PageState();
