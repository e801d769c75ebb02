/**
 * Encode and decode text with a run's `tokenizer.json`: the same ids as in the library, for all seven schemes.
 *
 * Classes of characters (letters, marks, digits, graphemes) follow the browser's version of Unicode.
 */
import { GlassError } from "../lib/api";
import { byteLetters, type Model, type ModelJson, modelOf } from "./tokenizer-models";
import { BYTE_LETTERS, concatBytes, printable, textOf, toRegExp, utf8 } from "./unicode";

interface Node {
  type: string;
  normalizers?: Node[];
  pretokenizers?: Node[];
  pattern?: { Regex?: string; String?: string };
  content?: string;
  behavior?: string;
  lowercase?: boolean;
  handle_chinese_chars?: boolean;
}

interface Document {
  normalizer: Node | null;
  pre_tokenizer: Node | null;
  added_tokens: { id: number; content: string }[];
  model: ModelJson & { glassformer: { kind: string; roles?: object } };
}

/** Ids with special roles; see the library's `Vocabulary`. */
export interface Vocabulary {
  size: number;
  start: number;
  end: number;
  mask: number | null;
  unknown: number | null;
  padding: number | null;
  special: number[];
  drops_space: boolean;
  frame: { before: number[]; after: number[] } | null;
  target_start: number[];
}

export interface TokenizerJson {
  document: Document;
  description: string;
  exact: boolean;
  roles: Vocabulary;
}

const IDEOGRAPHS = /[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{f900}-\u{faff}\u{2f800}-\u{2fa1f}]/gu;
/** Punctuation added after Unicode 8, which the library's WordPiece uses; U+166D and U+111C9 were punctuation then. */
const NEWER_PUNCTUATION =
  String.raw`\u{61d}\u{9fd}\u{a76}\u{c77}\u{c84}\u{1b4e}-\u{1b4f}\u{1b7d}-\u{1b7f}\u{2e43}-\u{2e4f}` +
  String.raw`\u{2e52}-\u{2e5d}\u{10d6e}\u{10ead}\u{10ed0}\u{10f55}-\u{10f59}\u{10f86}-\u{10f89}` +
  String.raw`\u{113d4}-\u{113d5}\u{113d7}-\u{113d8}\u{1144b}-\u{1144f}\u{1145a}-\u{1145b}\u{1145d}` +
  String.raw`\u{11660}-\u{1166c}\u{116b9}\u{1183b}\u{11944}-\u{11946}\u{119e2}\u{11a3f}-\u{11a46}` +
  String.raw`\u{11a9a}-\u{11a9c}\u{11a9e}-\u{11aa2}\u{11b00}-\u{11b09}\u{11be1}\u{11c41}-\u{11c45}` +
  String.raw`\u{11c70}-\u{11c71}\u{11ef7}-\u{11ef8}\u{11f43}-\u{11f4f}\u{11fff}\u{12ff1}-\u{12ff2}` +
  String.raw`\u{16d6d}-\u{16d6f}\u{16e97}-\u{16e9a}\u{16fe2}\u{1e5ff}\u{1e95e}-\u{1e95f}`;
const PUNCTUATION = new RegExp(`(?![${NEWER_PUNCTUATION}])[\\p{P}\\u{166d}\\u{111c9}$+<=>^\`|~]`, "gu");
const METASPACE = /\u2581/g;

export class Tokenizer {
  readonly kind: string;
  readonly roles: Vocabulary;
  readonly special: ReadonlySet<number>;
  readonly #document: Document;
  readonly #model: Model;
  readonly #bytes: Uint8Array[];
  readonly #names = new Map<number, string>();

  constructor(readonly json: TokenizerJson) {
    this.#document = json.document;
    this.kind = json.document.model.glassformer.kind;
    this.roles = json.roles;
    this.special = new Set(json.roles.special);
    this.#model = modelOf(json.document.model);
    this.#bytes = this.#allBytes();
  }

  get size(): number {
    return this.roles.size;
  }

  encode(text: string): number[] {
    if (/\p{Surrogate}/u.test(text)) {
      throw new GlassError("The text contains half of a surrogate pair: it is not valid Unicode.", "Remove that character.");
    }
    const clean = nodes(this.#document.normalizer).reduce((each, node) => normalize(each, node), text);
    if (this.kind === "bytes") return [...utf8(clean)];
    if (this.kind === "graphemes") return graphemes(clean).flatMap(this.#model);
    let words = [clean];
    for (const node of nodes(this.#document.pre_tokenizer)) words = words.flatMap((word) => preTokenize(word, node));
    return words.filter((word) => word !== "").flatMap((word) => this.#model(word));
  }

  /** Text of ids without special tokens; U+FFFD for unknown symbols and for invalid UTF-8. */
  decode(ids: readonly number[]): string {
    const text = textOf(concatBytes(ids.map((id) => this.bytes(id))));
    const first = ids.find((id) => this.bytes(id).length > 0);
    return this.roles.drops_space && first !== undefined && this.bytes(first)[0] === 0x20 ? text.slice(1) : text;
  }

  /** Decode tokens one at a time into complete characters; the texts joined equal `decode` of all tokens. */
  stream(): (id: number) => string {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let atStart = this.roles.drops_space;
    return (id) => {
      let bytes = this.bytes(id);
      if (atStart && bytes.length > 0) {
        atStart = false;
        if (bytes[0] === 0x20) bytes = bytes.subarray(1);
      }
      return decoder.decode(bytes, { stream: true });
    };
  }

  /** Bytes of one token; none for special tokens. */
  bytes(id: number): Uint8Array {
    return this.#bytes[id] ?? new Uint8Array();
  }

  /** Readable text of one token; the name of a special token. */
  text(id: number): string {
    return this.special.has(id) ? (this.#names.get(id) ?? `<${id}>`) : printable(this.bytes(id));
  }

  #allBytes(): Uint8Array[] {
    const { model, added_tokens } = this.#document;
    const all: Uint8Array[] = Array.from({ length: this.size }, () => new Uint8Array());
    const pairs: [string, number][] = Array.isArray(model.vocab)
      ? model.vocab.map(([token], id) => [token, id])
      : Object.entries(model.vocab);
    const bytesOf = tokenDecoder(this.kind, model.glassformer.roles !== undefined);
    for (const [token, id] of pairs) {
      this.#names.set(id, token);
      if (!this.special.has(id)) all[id] = bytesOf(token);
    }
    for (const { id, content } of added_tokens) this.#names.set(id, content);
    if (this.roles.unknown !== null) all[this.roles.unknown] = utf8("\ufffd");
    return all;
  }
}

/** The components of a sequence, in order. */
function nodes(node: Node | null): Node[] {
  if (node === null) return [];
  return node.type === "Sequence" ? [...(node.normalizers ?? []), ...(node.pretokenizers ?? [])].flatMap(nodes) : [node];
}

function normalize(text: string, node: Node): string {
  switch (node.type) {
    case "NFC": case "NFD": case "NFKC": case "NFKD":
      return text.normalize(node.type);
    case "Lowercase":
      return lowercase(text);
    case "Replace":
      return text.replace(patternOf(node), () => node.content ?? "");
    case "BertNormalizer": {
      const apart = node.handle_chinese_chars ? text.replace(IDEOGRAPHS, " $& ") : text;
      return node.lowercase ? lowercase(apart) : apart;
    }
    default:
      throw new Error(`this page does not support the normalizer ${node.type}`);
  }
}

/** Lowercase each character separately, so that none depends on its neighbours, as a final sigma would. */
function lowercase(text: string): string {
  return Array.from(text, (letter) => letter.toLowerCase()).join("");
}

function preTokenize(text: string, node: Node): string[] {
  switch (node.type) {
    case "ByteLevel":
      return [byteLetters(text)];
    case "BertPreTokenizer":
      return text.split(/\p{White_Space}/u).flatMap((word) => splitIsolated(word, PUNCTUATION));
    case "Split":
      return node.behavior === "MergedWithNext" ? splitMergedWithNext(text, patternOf(node)) : splitIsolated(text, patternOf(node));
    default:
      throw new Error(`the page has no pre-tokenizer ${node.type}`);
  }
}

function patternOf({ pattern }: Node): RegExp {
  if (pattern?.Regex !== undefined) return toRegExp(pattern.Regex);
  return new RegExp((pattern?.String ?? "").replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"), "gu");
}

/** The matches, and the text between them. */
function splitIsolated(text: string, pattern: RegExp): string[] {
  const parts: string[] = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(at, match.index), match[0]);
    at = match.index + match[0].length;
  }
  return [...parts, text.slice(at)].filter((part) => part !== "");
}

/** Each match with the text after it, unless another match follows. */
function splitMergedWithNext(text: string, pattern: RegExp): string[] {
  const matches = new Set([...text.matchAll(pattern)].map((match) => match.index));
  const parts: string[] = [];
  let at = 0;
  let open = "";
  for (const part of splitIsolated(text, pattern)) {
    if (matches.has(at)) {
      if (open !== "") parts.push(open);
      open = part;
    } else {
      parts.push(open + part);
      open = "";
    }
    at += part.length;
  }
  return open === "" ? parts : [...parts, open];
}

function graphemes(text: string): string[] {
  return Array.from(new Intl.Segmenter("en", { granularity: "grapheme" }).segment(text), ({ segment }) => segment);
}

/** Function from a token of the vocabulary to its bytes, by scheme. */
function tokenDecoder(kind: string, imported: boolean): (token: string) => Uint8Array {
  if (kind === "bytes" || kind === "bpe") {
    const byte = new Map(BYTE_LETTERS.map((letter, value) => [letter, value]));
    return (token) => Uint8Array.from(token, (letter) => byte.get(letter) ?? 0);
  }
  if (kind === "wordpiece") return (token) => utf8(token.length > 2 && token.startsWith("##") ? token.slice(2) : ` ${token}`);
  if (kind !== "unigram") return utf8;
  return (token) => {
    const fallback = /^<0x([0-9A-F]{2})>$/.exec(token);
    if (fallback) return Uint8Array.of(Number.parseInt(fallback[1]!, 16));
    return utf8(imported ? token.replace(METASPACE, " ") : token);
  };
}
