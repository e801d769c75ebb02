/** From a word to tokens, for the four types of model in a `tokenizer.json`. */
import { BYTE_LETTERS, utf8 } from "./unicode";

/** Function from a word to its ids. */
export type Model = (word: string) => number[];

export interface ModelJson {
  type?: string;
  vocab: Record<string, number> | [string, number][];
  merges?: (string | [string, string])[];
  unk_token?: string | null;
  continuing_subword_prefix?: string | null;
  max_input_chars_per_word?: number;
  ignore_merges?: boolean;
  byte_fallback?: boolean;
  unk_id?: number | null;
}

export function modelOf(json: ModelJson): Model {
  if (Array.isArray(json.vocab)) return unigram(json.vocab, json.unk_id ?? null, json.byte_fallback === true);
  const vocabulary = new Map(Object.entries(json.vocab));
  const unknown = json.unk_token == null ? null : (vocabulary.get(json.unk_token) ?? null);
  if (json.type === "WordLevel") return (word) => idList(vocabulary.get(word) ?? unknown);
  if (json.type === "WordPiece") return wordPiece(vocabulary, unknown, json);
  return memoized(bytePairEncoding(vocabulary, json.merges ?? [], json.ignore_merges === true));
}

function idList(id: number | null): number[] {
  return id === null ? [] : [id];
}

/** The function with a cache for short words. */
function memoized(model: Model): Model {
  const known = new Map<string, number[]>();
  return (word) => {
    let ids = known.get(word);
    if (ids === undefined) {
      ids = model(word);
      if (known.size < 20_000 && word.length < 64) known.set(word, ids);
    }
    return ids;
  };
}

/** Byte pair encoding: merge the adjacent pair that was merged first in training, the leftmost one first; repeat. */
function bytePairEncoding(vocabulary: Map<string, number>, merges: (string | [string, string])[], whole: boolean): Model {
  const ranks = new Map(merges.map((merge, rank) => [typeof merge === "string" ? merge : merge.join(" "), rank]));
  return (word) => {
    const id = whole ? vocabulary.get(word) : undefined;
    if (id !== undefined) return [id];
    const parts = [...word];
    for (;;) {
      let best = Infinity;
      let position = -1;
      for (let at = 0; at + 1 < parts.length; at += 1) {
        const rank = ranks.get(`${parts[at]} ${parts[at + 1]}`) ?? Infinity;
        if (rank < best) {
          best = rank;
          position = at;
        }
      }
      if (position < 0) break;
      parts.splice(position, 2, parts[position]! + parts[position + 1]!);
    }
    return parts.flatMap((part) => idList(vocabulary.get(part) ?? null));
  };
}

/** WordPiece: from the left, the longest matching token; a word that cannot be covered completely is unknown. */
function wordPiece(vocabulary: Map<string, number>, unknown: number | null, json: ModelJson): Model {
  const prefix = json.continuing_subword_prefix ?? "##";
  const most = json.max_input_chars_per_word ?? 100;
  return (word) => {
    const letters = [...word];
    if (letters.length > most) return idList(unknown);
    const ids: number[] = [];
    for (let start = 0; start < letters.length; ) {
      let end = letters.length;
      let id: number | undefined;
      for (; end > start; end -= 1) {
        id = vocabulary.get((start > 0 ? prefix : "") + letters.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return idList(unknown);
      ids.push(id);
      start = end;
    }
    return ids;
  };
}

const UNKNOWN_PENALTY = 10; // penalty of an unknown character below the score of the rarest piece

/** Unigram (Kudo 2018): the segmentation with the highest sum of scores; other characters become bytes or unknown. */
function unigram(vocab: [string, number][], unknown: number | null, inBytes: boolean): Model {
  const ids = new Map(vocab.map(([piece], id) => [piece, id]));
  const scores = vocab.map(([, score]) => score);
  const longest = Math.max(...vocab.map(([piece]) => [...piece].length));
  const unknownScore = Math.min(...scores) - UNKNOWN_PENALTY;
  const encodePiece = (piece: string): number[] => {
    const id = ids.get(piece);
    if (id !== undefined) return [id];
    const bytes = [...utf8(piece)].map((byte) => ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
    return inBytes && bytes.every((byte) => byte !== undefined) ? bytes : idList(unknown);
  };
  return (word) => {
    const letters = [...word];
    const best: { score: number; from: number; known: boolean }[] = letters.map(() => ({ score: -Infinity, from: -1, known: false }));
    best.unshift({ score: 0, from: 0, known: true });
    for (let start = 0; start < letters.length; start += 1) {
      let piece = "";
      let single = false;
      for (let end = start + 1; end <= Math.min(letters.length, start + longest); end += 1) {
        piece += letters[end - 1]!;
        const id = ids.get(piece);
        if (id === undefined) continue;
        single ||= end === start + 1;
        const score = best[start]!.score + scores[id]!;
        if (best[end]!.from < 0 || score > best[end]!.score) best[end] = { score, from: start, known: true };
      }
      const score = best[start]!.score + unknownScore;
      if (!single && (best[start + 1]!.from < 0 || score > best[start + 1]!.score)) {
        best[start + 1] = { score, from: start, known: false };
      }
    }
    const pieces: string[] = [];
    let rest = ""; // consecutive unknown characters form one piece
    for (let end = letters.length; end > 0; end = best[end]!.from) {
      const { from, known } = best[end]!;
      const piece = letters.slice(from, end).join("");
      if (known) {
        if (rest !== "") pieces.push(rest);
        pieces.push(piece);
        rest = "";
      } else rest = piece + rest;
    }
    if (rest !== "") pieces.push(rest);
    return pieces.reverse().flatMap(encodePiece);
  };
}

/** Names of the bytes of a byte-level word in the vocabulary. */
export function byteLetters(text: string): string {
  return Array.from(utf8(text), (byte) => BYTE_LETTERS[byte]!).join("");
}
