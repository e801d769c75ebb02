"""Cut documents into rows of at most `context` predictions, and shuffle rows without storing a permutation."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

BLOCK = 1024  # documents between two stored row counts
ROUNDS = 6  # of the Feistel network


class DocumentPieces:
    """The rows of a store with `data.windows` = documents, located without a list of rows in memory.

    A document of n tokens (its end token included) is predicted in ceil(n / context) rows. Row k of a document predicts
    tokens k*context ... (k+1)*context - 1 and begins with the token before them; row 0 begins with the start token.

    Args:
        document_ends: (documents,) position after each document's end token.
        context: maximum number of predictions in one row.
    """

    def __init__(self, document_ends: npt.NDArray[np.uint64], context: int) -> None:
        self.document_ends = document_ends
        self.context = context
        row_starts = [0]
        for first in range(0, len(document_ends), BLOCK):
            row_starts.append(row_starts[-1] + int(self._row_counts(first).sum()))
        self._block_starts = np.array(row_starts, dtype=np.int64)  # rows before every BLOCK-th document

    def __len__(self) -> int:
        return int(self._block_starts[-1])

    def _bounds(self, first: int) -> npt.NDArray[np.int64]:
        """Return the starts of the documents first ... first + BLOCK - 1, and the end of the last one."""
        ends = np.asarray(self.document_ends[max(first - 1, 0) : first + BLOCK], dtype=np.int64)
        return ends if first else np.concatenate([np.zeros(1, np.int64), ends])

    def _row_counts(self, first: int) -> npt.NDArray[np.int64]:
        counts: npt.NDArray[np.int64] = -(-np.diff(self._bounds(first)) // self.context)
        return counts

    def span(self, row: int) -> tuple[int, int, bool]:
        """Return the range (start, stop) of the tokens that `row` predicts, and whether the row begins a document."""
        block = int(np.searchsorted(self._block_starts, row, side="right")) - 1
        first = block * BLOCK
        cumulative_rows = np.cumsum(self._row_counts(first))
        row_in_block = row - int(self._block_starts[block])
        document = int(np.searchsorted(cumulative_rows, row_in_block, side="right"))
        row_in_document = row_in_block - (int(cumulative_rows[document - 1]) if document else 0)
        bounds = self._bounds(first)
        start = int(bounds[document]) + row_in_document * self.context
        return start, min(start + self.context, int(bounds[document + 1])), row_in_document == 0


class PrefixRows:
    """The rows of a store with `data.windows` = prefixes.

    The inputs of a row are the first 1, 2, ... or `context` tokens of a document, and its target is the token that
    follows them. End tokens are not predicted.

    Args:
        document_ends: (documents,) position after each document's end token.
        context: maximum number of inputs of one row.
    """

    def __init__(self, document_ends: npt.NDArray[np.uint64], context: int) -> None:
        self.document_starts = np.concatenate([np.zeros(1, np.int64), np.asarray(document_ends, dtype=np.int64)])
        rows = np.clip(np.diff(self.document_starts) - 2, 0, context)  # without the first token and the end token
        self.row_ends = np.cumsum(rows)  # (documents,) rows up to the end of each document

    def __len__(self) -> int:
        return int(self.row_ends[-1]) if len(self.row_ends) else 0

    def span(self, row: int) -> tuple[int, int]:
        """Return the range (start, stop) of the tokens of a row; the last of them is its target."""
        document = int(np.searchsorted(self.row_ends, row, side="right"))
        start = int(self.document_starts[document])
        inputs = 1 + row - (int(self.row_ends[document - 1]) if document else 0)
        return start, start + inputs + 1

    def order(self, seed: int) -> npt.NDArray[np.int64]:
        """Return a random permutation of the rows, of which `data.split` = rows holds out the first ones."""
        # Raw words of Philox 4x64-10 (Salmon et al. 2011) are the same in every version of NumPy and on every machine.
        words = np.random.Philox(key=np.array([seed % (1 << 64), 0], dtype=np.uint64)).random_raw(len(self))
        return np.argsort(words, kind="stable")


def shuffled(position: int, size: int, seed: int, epoch: int) -> int:
    """Return the element at `position` of the permutation of 0 ... size - 1 that (seed, epoch) selects.

    A Feistel network over the next even number of bits is applied until the result is below `size` (cycle walking;
    Black and Rogaway 2002, "Ciphers with arbitrary finite domains"), so no list of `size` numbers is kept in memory.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    key = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=16).digest()
    while True:
        left = position >> half
        right = position & mask
        for round_index in range(ROUNDS):
            mixed = hashlib.blake2b(bytes([round_index]) + right.to_bytes(8, "little"), digest_size=8, key=key).digest()
            new = left ^ (int.from_bytes(mixed, "little") & mask)
            left = right
            right = new
        position = left << half | right
        if position < size:
            return position
