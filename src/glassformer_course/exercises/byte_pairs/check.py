"""Reference functions and test cases for byte pair encoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture
from glassformer_course.judging.showing import format_value

Pair = tuple[int, int]
CORPORA = ("low lower lowest newer wider low low", "aaaa aaa aa aaaaa", "আমি ভাত খাই, আমরা ভাত খাই", "abcdefg")
SCRIPTS = ("naïve café", "আমার সোনার বাংলা", "🙂🙃👩‍🚀", "ẞ\x00\t\n", "日本語 и русский")


def best_pair(ids: list[int]) -> Pair | None:
    """Return the most frequent adjacent pair, on ties the smallest, or None if there is no pair."""
    # max returns the first of equal counts, which is the smallest pair because the pairs are sorted
    counts = Counter(sorted(pairwise(ids)))
    return max(counts, key=counts.__getitem__, default=None)


def merge(ids: list[int], pair: Pair, new: int) -> list[int]:
    """Return the ids with `pair` replaced by `new`, from left to right."""
    merged: list[int] = []
    free = False  # whether the last token may still be merged
    for token in ids:
        if free and (merged[-1], token) == pair:
            merged[-1] = new
            free = False
        else:
            merged.append(token)
            free = True
    return merged


def encode(text: str, merges: list[Pair]) -> list[int]:
    """Encode the text by applying one merge after another."""
    ids = list(text.encode())
    for number, pair in enumerate(merges, start=256):
        ids = merge(ids, pair, number)
    return ids


def decode(ids: list[int], merges: list[Pair]) -> str:
    """Decode the ids by splitting each token into its pair until only bytes are left."""

    def token_bytes(token: int) -> bytes:
        if token < 256:
            return bytes([token])
        first, second = merges[token - 256]
        return token_bytes(first) + token_bytes(second)

    return b"".join(map(token_bytes, ids)).decode(errors="replace")


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for each function, then for all functions together on small corpora and on many scripts."""
    yield call("best_pair", [1, 2, 3, 1, 2], note="where (1, 2) occurs twice and all other pairs once")
    yield call("best_pair", [5, 6, 1, 9, 5, 6, 1, 9], note="where (1, 9), (5, 6) and (6, 1) occur twice each: a tie")
    yield call("best_pair", [2, 1, 7, 7, 7, 2, 1], note="where (2, 1) and, overlapping, (7, 7) occur twice: a tie")
    yield call("best_pair", [4, 4, 4, 1, 2, 1, 2, 4], note="where (1, 2) and, overlapping, (4, 4) occur twice: a tie")
    yield call("best_pair", [8, 8, 8, 8, 1, 2, 1, 2], note="where (8, 8) occurs three times, with overlaps")
    yield call("best_pair", [3, 300, 2, 300, 3], note="where every pair occurs once")
    for size in (7, 29):
        yield call("best_pair", rng.integers(4, size=size).tolist(), note="where the ids are random")
    yield call("best_pair", [9], note="where there is only one id")
    yield call("merge", [97, 97, 97], (97, 97), 256, note='where "aaa" has two overlapping pairs')
    yield call("merge", [1, 2, 3, 1, 2], (1, 2), 256, note="where the pair is at the start and at the end")
    yield call("merge", [7] * 7, (7, 7), 300, note="where all seven ids are equal")
    yield call("merge", [1, 1, 2, 1, 1, 1, 2], (1, 1), 256, note="where the pair is two equal ids")
    for _ in range(3):
        yield call("merge", rng.integers(2, size=23).tolist(), (0, 0), 256, note="where the ids are random")
    yield call("merge", [1, 2], (2, 1), 256, note="where the pair does not occur")
    yield call("merge", [], (1, 2), 256, note="where there are no ids")
    for corpus in CORPORA:
        yield _learning(corpus, 6)
    yield call("encode", "abc", [(98, 99), (97, 98)], note='where "bc" was learned before "ab"')
    yield call("encode", "abcab", [(97, 98), (98, 99), (256, 99)], note='where a merge uses "ab", a merged token')
    yield call("encode", "বই é", [], note="where there are no merges: the bytes")
    yield call("encode", "abcbcd", [(98, 99), (256, 100), (97, 98)], note='where "ab" was learned last')
    merges = learned_merges("বাংলা ভাষা, বাংলা দেশ 🙂🙂 abab", 12)
    for text in ("বাংলা বাংলা", "🙂🙂🙂", "abababab", "abbab বাংলা"):
        yield call("encode", text, merges, note="where 12 merges were learned from Bangla, emoji and letters")
    yield call("encode", "", merges, note="where the text is empty")
    yield call("decode", encode("বাংলা 🙂", merges), merges, note="where tokens contain parts of characters")
    yield call("decode", [104, 105, 0xE0, 0xA6], [], note="where the bytes end inside a character")
    for text in (*SCRIPTS, "".join(map(chr, rng.integers(0x20, 0xD000, size=17)))):
        yield _there_and_back(text, merges)


def cases_on(text: str) -> Iterator[Case]:
    """Yield cases on the first 1,000 characters of a class's own text: learn merges, encode, and decode again."""
    beginning = text[:1000]
    merges = learned_merges(beginning, 20)
    yield _learning(beginning, len(merges))
    yield call("encode", beginning, merges, note="where text and merges are from your class's text")
    yield _there_and_back(beginning, merges)


def learned_merges(text: str, count: int) -> list[Pair]:
    """Learn at most `count` merges with the reference functions."""
    ids = list(text.encode())
    merges: list[Pair] = []
    while len(merges) < count and (pair := best_pair(ids)):
        merges.append(pair)
        ids = merge(ids, pair, 255 + len(merges))
    return merges


def _learning(corpus: str, count: int) -> Case:
    def ask(functions: Functions) -> list[Pair]:
        ids = list(corpus.encode())
        merges: list[Pair] = []
        for new in range(256, 256 + count):
            merges.append(functions.best_pair(ids))
            ids = functions.merge(ids, merges[-1], new)
        return merges

    name = format_value(corpus)
    return Case(ask, note=f"where {count} merges are learned from {name}", description=f"learn_merges({name}, {count})")


def _there_and_back(text: str, merges: list[Pair]) -> Case:
    def ask(functions: Functions) -> str:
        text_again: str = functions.decode(functions.encode(text, merges), merges)
        return text_again

    return Case(
        ask, note="where decoding must return the same text", description=f"decode(encode({format_value(text)}))"
    )


def picture() -> Picture:
    """Draw the counts of adjacent token pairs before and after one merge."""
    text = "low lower lowest"
    ids = list(text.encode())
    pair = best_pair(ids)
    assert pair is not None
    merged = merge(ids, pair, 256)
    names = {256: "".join(map(chr, pair))}
    pairs = [
        _pairs(f"{title}: {len(tokens)} tokens", tokens, names)
        for title, tokens in (("bytes", ids), ("after one merge", merged))
    ]
    return Picture(
        pairs,
        caption=f'Pairs in "{text}": the row is the first token, the column the second. Of the most frequent pairs, '
        f'"{names[256]}" is the smallest, so it becomes a token.',
    )


def _pairs(title: str, ids: list[int], names: dict[int, str]) -> Panel:
    tokens = sorted(set(ids))
    labels = [names.get(token, chr(token)).replace(" ", "space") for token in tokens]
    counts = np.full((len(tokens), len(tokens)), np.nan)
    for first, second in set(pairwise(ids)):
        counts[tokens.index(first), tokens.index(second)] = list(pairwise(ids)).count((first, second))
    return Panel(title, counts, labels, labels)
