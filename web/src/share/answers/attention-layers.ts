/** The attention layers of a pass, by site, for the attention views. */
import { GlassError } from "../../lib/api";
import { allowedKeys, type AttentionPass, type MaskAndBias, NO_MASK, scoreOf } from "../attention";
import type { SharedFile, Subject } from "../shared-file";
import { rowOf } from "../tensors";

export interface TextQuestion {
  text: string;
  target?: string | null;
}

/** One attention layer in a pass. */
export class Layer {
  constructor(
    readonly site: string, readonly pass: AttentionPass, readonly maskAndBias: MaskAndBias, readonly headWidth: number,
    readonly labels: { queries: string[]; keys: string[] },
  ) {}

  /** Numbers of queries T and keys S. */
  get shape(): [number, number] {
    return [this.pass.q.rows, this.pass.k.rows];
  }

  /** Index of a head among the layer's heads. */
  indexOf(head: number): number {
    const index = this.pass.parameters.heads.indexOf(head);
    if (index >= 0) return index;
    throw new GlassError(`There is no head ${head} in ${this.site}.`, `Choose one of ${this.pass.parameters.heads.join(", ")}.`);
  }

  /** Range of the keys that a query may attend to. */
  allowedKeys(query: number): [number, number] {
    return allowedKeys(this.maskAndBias, query, this.shape[1]);
  }

  /** The weights (S) of one query in the head with this index, NaN where masked. */
  weights(index: number, query: number): Float64Array {
    const row = rowOf(this.pass.weights[index]!, query).slice();
    const [from, to] = this.allowedKeys(query);
    return row.fill(Number.NaN, 0, from).fill(Number.NaN, to);
  }

  score(index: number, query: number, key: number): number {
    return scoreOf(this.pass, index, query, key, this.headWidth, this.maskAndBias.bias);
  }
}

/** All attention layers that have heads, in the order of the forward pass. */
export function attentionLayers(shared: SharedFile, { text, target }: TextQuestion): Map<string, Layer> {
  const subject = shared.subject(text, target ?? null);
  const found = new Map<string, Layer>();
  for (const stack of [subject.pass.encoder, subject.pass.stack]) {
    for (const part of stack?.blocks.flat() ?? []) {
      const pass = part.attention;
      if (pass === null || pass.parameters.heads.length === 0) continue;
      const cross = part.name === "cross";
      const maskAndBias = cross ? NO_MASK : shared.model.stacks.find((each) => each.name === stack!.name)!.maskAndBias;
      const side = labelsOf(shared, subject);
      const own = stack!.name === "enc" && side.source !== null ? side.source : side.row;
      const labels = { queries: own, keys: cross ? side.source! : own };
      found.set(pass.parameters.site, new Layer(pass.parameters.site, pass, maskAndBias, shared.model.settings.head_width, labels));
    }
  }
  return found;
}

/** The layer and the index of a head such as dec.1.self.2. */
export function findHead(layers: Map<string, Layer>, name: string): { layer: Layer; index: number } {
  const [, site = "", head = ""] = /^(.*)\.(\d+)$/.exec(name) ?? [];
  const layer = layers.get(site);
  if (layer === undefined) {
    throw new GlassError(`There is no head ${name} in this model.`, `Choose a head of ${[...layers.keys()].join(", ")}.`);
  }
  return { layer, index: layer.indexOf(Number(head)) };
}

/** Texts of the tokens of the stack before the output head, and of the source. */
export function labelsOf(shared: SharedFile, subject: Subject): { row: string[]; source: string[] | null } {
  const { tokenizer, sourceTokenizer } = shared;
  return {
    row: subject.ids.map((id) => visibleToken(tokenizer.text(id))),
    source: subject.source === null ? null : subject.source.map((id) => visibleToken(sourceTokenizer.text(id))),
  };
}

/** A token's text with all characters visible. */
export function visibleToken(name: string): string {
  return name.replaceAll(" ", "␣") || "∅";
}
