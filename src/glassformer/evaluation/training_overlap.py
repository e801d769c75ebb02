"""Measure how much of a text a run has seen in training; the loss on seen text says little about new text.

Each document is cut into passages of 32 tokens. The remainder is ignored; a document shorter than a passage is one
passage with its end token. A passage counts as seen if the training split contains the same sequence of tokens. To
save memory, 64-bit hashes are compared, and the training tokens are read in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.base.wording import counted
from glassformer.evaluation.copying import Powers
from glassformer.text.store import TokenStore

PASSAGE = 32
BLOCK = 1 << 20  # training tokens processed at a time
AT_ONCE = 1 << 15  # passages hashed at a time

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class TrainingOverlap:
    """The overlap of a text with the training split of a run.

    Attributes:
        training_text: whether the text has the same hash as the training text of the run.
        passages: number of passages in the text; None if the training split is not available.
        seen: number of passages that are in the training split; None if the training split is not available.
    """

    training_text: bool
    passages: int | None
    seen: int | None

    def notes(self, text: str) -> Iterator[str]:
        """Yield a note for each reason why the loss on `text` may be lower than on new text."""
        if self.training_text:
            yield (
                f"{text} is the text that this run was trained on, including its validation split; "
                "leave DATA out to measure only the validation split"
            )
        if self.passages and self.seen:
            appear = "appears" if self.seen == 1 else "appear"
            yield (
                f"{self.seen:,} of {counted(self.passages, 'passages')} (of up to {PASSAGE} tokens) {appear} token for "
                f"token in the training split ({self.seen / self.passages:.1%})"
            )


@dataclass(frozen=True)
class Reading:
    """Result of reading a text: documents left out, overlap with the training text, and notes.

    Attributes:
        left_out: reason -> number of documents that were not measured.
        overlap: overlap with the training split; None for the run's own validation split.
        notes: notes that the user was shown.
    """

    left_out: dict[str, int]
    overlap: TrainingOverlap | None
    notes: list[str]

    def facts(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "left_out": self.left_out,
            "training_overlap": None if self.overlap is None else asdict(self.overlap),
            "notes": self.notes,
        }


def count_seen(text: TokenStore, train: TokenStore) -> tuple[int, int]:
    """Return the number of passages in `text`, and the number of these that are also in `train`."""
    ends = np.asarray(text.document_ends, dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts - 1  # (documents,), without the end token
    passage_counts = lengths // PASSAGE  # (documents,): number of passages
    passage_index = np.arange(int(passage_counts.sum())) - np.repeat(
        np.cumsum(passage_counts) - passage_counts, passage_counts
    )
    passage_starts = np.repeat(starts, passage_counts) + PASSAGE * passage_index  # (passages,)
    seen_passages = int(
        np.isin(_hashes(text, passage_starts, PASSAGE), _seen_hashes(text, train, passage_starts)).sum()
    )
    short = (passage_counts == 0) & (lengths > 0)
    train_ends = np.asarray(train.document_ends, dtype=np.int64)
    for length in np.unique(lengths[short]).tolist():
        size = length + 1  # with the end token
        text_hashes = _hashes(text, starts[short & (lengths == length)], size)
        train_hashes = _hashes(train, train_ends[train_ends >= size] - size, size)
        seen_passages += int(np.isin(text_hashes, train_hashes).sum())
    return len(passage_starts) + int(short.sum()), seen_passages


def _seen_hashes(text: TokenStore, train: TokenStore, starts: NDArray[np.int64]) -> Hashes:
    """Return the hashes of the passages in `text` that also occur in the training tokens."""
    text_hashes = np.unique(_hashes(text, starts, PASSAGE))
    is_seen = np.zeros(len(text_hashes), dtype=np.bool_)
    if not len(text_hashes):
        return text_hashes
    powers = Powers(BLOCK + PASSAGE)
    for start in range(0, len(train.tokens) - PASSAGE + 1, BLOCK):
        tokens = np.asarray(train.tokens[start : start + BLOCK + PASSAGE - 1])
        hashes = powers.window_hashes(powers.sums(tokens), PASSAGE)
        slots = np.minimum(np.searchsorted(text_hashes, hashes), len(text_hashes) - 1)
        is_seen[slots[text_hashes[slots] == hashes]] = True
    seen_hashes: Hashes = text_hashes[is_seen]
    return seen_hashes


def _hashes(store: TokenStore, starts: NDArray[np.int64], length: int) -> Hashes:
    """Return a hash for each window of `length` tokens that begins at one of `starts`, as in `Powers.window_hashes`."""
    factors = Powers(length).up[:length]
    hashes = np.empty(len(starts), dtype=np.uint64)
    for start in range(0, len(starts), AT_ONCE):
        positions = starts[start : start + AT_ONCE, None] + np.arange(length)  # (windows, length)
        codes = np.asarray(store.tokens[positions]).astype(np.uint64) + np.uint64(1)
        hashes[start : start + AT_ONCE] = (codes * factors).sum(axis=1, dtype=np.uint64)
    return hashes
