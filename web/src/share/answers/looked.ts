/** The attention layers of a pass, by site, for the attention views. */
import { Problem } from "../../lib/api";
import { type AttentionPass, EVERYTHING, scoreOf, seen, type Sight } from "../attention";
import type { Shared, Subject } from "../shared";
import { rowOf } from "../tensors";

export interface TextQuestion {
  text: string;
  target?: string | null;
}

/** One attention layer in a pass. */
export class Layer {
  constructor(
    readonly site: string, readonly pass: AttentionPass, readonly sight: Sight, readonly headWidth: number,
    readonly labels: { queries: string[]; keys: string[] },
  ) {}

  /** Numbers of queries T and keys S. */
  get shape(): [number, number] {
    return [this.pass.q.rows, this.pass.k.rows];
  }

  /** Index of a head among the layer's heads. */
  placeOf(head: number): number {
    const place = this.pass.of.heads.indexOf(head);
    if (place >= 0) return place;
    throw new Problem(`There is no head ${head} in ${this.site}.`, `Choose one of ${this.pass.of.heads.join(", ")}.`);
  }

  /** Range of the keys that a query may attend to. */
  seen(query: number): [number, number] {
    return seen(this.sight, query, this.shape[1]);
  }

  /** The weights (S) of one query in the head with this index, NaN where masked. */
  weights(place: number, query: number): Float64Array {
    const row = rowOf(this.pass.weights[place]!, query).slice();
    const [from, to] = this.seen(query);
    return row.fill(Number.NaN, 0, from).fill(Number.NaN, to);
  }

  score(place: number, query: number, key: number): number {
    return scoreOf(this.pass, place, query, key, this.headWidth, this.sight.bias);
  }
}

/** All attention layers that have heads, in the order of the forward pass. */
export function layersOf(shared: Shared, { text, target }: TextQuestion): Map<string, Layer> {
  const subject = shared.subject(text, target ?? null);
  const found = new Map<string, Layer>();
  for (const stack of [subject.pass.encoder, subject.pass.stack]) {
    for (const part of stack?.blocks.flat() ?? []) {
      const pass = part.attention;
      if (pass === null || pass.of.heads.length === 0) continue;
      const cross = part.name === "cross";
      const sight = cross ? EVERYTHING : shared.model.stacks.find((each) => each.name === stack!.name)!.sight;
      const side = labelsOf(shared, subject);
      const own = stack!.name === "enc" && side.source !== null ? side.source : side.row;
      const labels = { queries: own, keys: cross ? side.source! : own };
      found.set(pass.of.site, new Layer(pass.of.site, pass, sight, shared.model.settings.head_width, labels));
    }
  }
  return found;
}

/** The layer and the index of a head such as dec.1.self.2. */
export function headAt(layers: Map<string, Layer>, name: string): { layer: Layer; place: number } {
  const [, site = "", head = ""] = /^(.*)\.(\d+)$/.exec(name) ?? [];
  const layer = layers.get(site);
  if (layer === undefined) {
    throw new Problem(`There is no head ${name} in this model.`, `Choose a head of ${[...layers.keys()].join(", ")}.`);
  }
  return { layer, place: layer.placeOf(Number(head)) };
}

/** Texts of the tokens of the stack before the output head, and of the source. */
export function labelsOf(shared: Shared, subject: Subject): { row: string[]; source: string[] | null } {
  const { tokenizer, sourceTokenizer } = shared;
  return {
    row: subject.ids.map((id) => shown(tokenizer.text(id))),
    source: subject.source === null ? null : subject.source.map((id) => shown(sourceTokenizer.text(id))),
  };
}

/** A token's text with all characters visible. */
export function shown(name: string): string {
  return name.replaceAll(" ", "␣") || "∅";
}
