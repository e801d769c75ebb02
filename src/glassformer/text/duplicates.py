"""Find exact duplicates of documents by a hash of the text, and near duplicates by MinHash over word n-grams.

Two documents are near duplicates if they share many runs of `RUN` words (n-grams). MinHash (Broder 1997, "On the
resemblance and containment of documents") estimates the Jaccard similarity J of their sets of runs: under a random
order of all runs, both documents have the same first run with probability J. `BANDS` x `ROWS` such orders in bands
(Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4) find a pair with probability 1 - (1 -
J^ROWS)^BANDS: 77 % at J = 0.75, 99 % at 0.85, 5 % at 0.5. `RUN`, `BANDS` and `ROWS` have the values of FineWeb (Penedo
et al. 2024).
"""

from __future__ import annotations

import hashlib
from array import array
from functools import cache
from random import Random

import numpy as np
import numpy.typing as npt
import regex

BANDS = 14
ROWS = 8
RUN = 5
CHUNK = 4096  # runs hashed at once
LONGEST = 2_000_000  # maximum characters of a word that is held back because it may continue in the next part
NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
# A word is a run of letters, marks and digits, so vowel signs do not split it. In scripts without spaces, each letter
# with its marks is a word.
WORD = regex.compile(rf"(?V1)[{NO_SPACES}]\p{{M}}*|[[\p{{L}}\p{{M}}\p{{N}}]--[{NO_SPACES}]]+")
Hashes = npt.NDArray[np.uint64]


@cache
def _orders() -> tuple[Hashes, Hashes]:
    """Return factors and summands of the hash functions that simulate random orders, (BANDS x ROWS, 1) each."""
    random = Random(0)
    numbers = np.array([random.getrandbits(64) for _ in range(2 * BANDS * ROWS)], dtype=np.uint64).reshape(2, -1, 1)
    return numbers[0] | np.uint64(1), numbers[1]


class Sketch:
    """A MinHash sketch of one document, which may be read in parts."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._unfinished_word = ""
        self._empty = True
        self._minima = np.full(BANDS * ROWS, np.iinfo(np.uint64).max, dtype=np.uint64)

    def read(self, text: str) -> None:
        """Read the next part of the document."""
        text = self._unfinished_word + text.casefold()
        matches = [match.span() for match in WORD.finditer(text)]
        self._unfinished_word = ""
        if matches and matches[-1][1] == len(text) and len(text) - matches[-1][0] < LONGEST:
            self._unfinished_word = text[matches.pop()[0] :]  # the last word may continue in the next part
        self._words += [text[start:end] for start, end in matches]
        self._hash_complete_runs()

    def _hash_complete_runs(self) -> None:
        """Hash every complete run of words, and keep the last words (at most RUN - 1) for the next run."""
        words = self._words
        while (complete_runs := len(words) - RUN + 1) > 0:
            count = min(CHUNK, complete_runs)
            self._hash_runs([words[start : start + RUN] for start in range(count)])
            del words[:count]

    def _hash_runs(self, runs: list[list[str]]) -> None:
        encoded = (" ".join(run).encode("utf-8", "surrogatepass") for run in runs)
        digests = b"".join(hashlib.blake2b(run, digest_size=8).digest() for run in encoded)
        factor, summand = _orders()
        # Multiply-shift (Dietzfelbinger et al. 1997): the high half of a product modulo 2^64.
        hashes = (np.frombuffer(digests, "<u8")[None, :] * factor + summand) >> np.uint64(32)  # (orders, runs)
        np.minimum(self._minima, hashes.min(axis=1), out=self._minima)
        self._empty = False

    def bands(self, text_hash: int) -> bytes:
        """Finish the document and return `BANDS` hashes of 8 bytes each.

        If the document has no words, each band hash is `text_hash`, the hash of the document's text.
        """
        if self._unfinished_word:
            self._words.append(self._unfinished_word)
            self._hash_complete_runs()
        if self._empty and self._words:  # fewer words than a run has: hash them as one run
            self._hash_runs([self._words])
        if self._empty:
            return text_hash.to_bytes(8, "little") * BANDS
        rows = self._minima.astype("<u8").reshape(BANDS, ROWS)
        return b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)


class DuplicateFinder:
    """A finder of duplicate documents.

    Until `duplicate_flags` is called, memory use is 16 bytes for each document, and 112 more to find near duplicates.
    """

    def __init__(self) -> None:
        self._indices = array("Q")
        self._text_hashes = array("Q")
        self._bands = bytearray()

    def add(self, index: int, text_hash: int, bands: bytes) -> None:
        """Add a document with an `index` above all earlier ones. Leave `bands` empty to find only exact duplicates."""
        self._indices.append(index)
        self._text_hashes.append(text_hash)
        self._bands += bands

    def duplicate_flags(self) -> bytes:
        """Return a byte for each index up to the last one added; empty if no document was added.

        A byte is 1 if its document duplicates an earlier document, directly or through other duplicates, otherwise 0.
        """
        indices = np.frombuffer(self._indices, np.uint64)
        text_hashes = np.frombuffer(self._text_hashes, np.uint64)
        if not len(text_hashes):
            return b""
        first = np.arange(len(text_hashes))
        bands = np.frombuffer(self._bands, "<u8").reshape(len(text_hashes), -1)  # (documents, BANDS or 0)
        for keys in (text_hashes, *bands.T):
            _merge_groups(first, keys)
        repeated = np.zeros(int(indices[-1]) + 1, dtype=np.uint8)
        repeated[indices[_roots(first) != np.arange(len(first))]] = 1
        return repeated.tobytes()


def _merge_groups(first: npt.NDArray[np.int64], keys: Hashes) -> None:
    """Merge the groups of documents with equal keys; a group is identified by its first document."""
    order = np.argsort(keys, kind="stable")
    equal_neighbours = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    for left, right in zip(order[equal_neighbours].tolist(), order[equal_neighbours + 1].tolist(), strict=True):
        a = _root(first, left)
        b = _root(first, right)
        first[max(a, b)] = min(a, b)


def _root(first: npt.NDArray[np.int64], document: int) -> int:
    while (parent := int(first[document])) != document:
        first[document] = first[parent]  # halve the path for later searches
        document = parent
    return document


def _roots(first: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first document of each document's group."""
    while not np.array_equal(shorter := first[first], first):
        first = shorter
    return first
