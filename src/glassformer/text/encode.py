"""Text to stores: long documents are encoded in pieces, with the tokens that encoding each whole would give."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glassformer.text.split import Side, SidedPiece
from glassformer.text.store import StoreWriter

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizer

PIECE = 128_000  # characters encoded as one string
AHEAD = 4_000  # characters that must be known after a cut, for the tokenizer to judge it
UNCUT = 4_000_000  # a text with no safe cut for so long is cut anyway
BATCH = 512_000  # characters given to the tokenizer at once
BATCH_TEXTS = 8192


@dataclass
class Encoder:
    """Collects pieces, encodes them in batches and writes them to the store of their side."""

    tokenizer: Tokenizer
    writers: Mapping[Side, StoreWriter]
    progress: Callable[[int], None] = lambda characters: None
    forced_cuts: int = 0
    _side: Side = "train"
    _texts: list[str] = field(default_factory=list)
    _lasts: list[bool] = field(default_factory=list)
    _collected: int = 0
    _done: int = 0

    def encode(self, pieces: Iterable[SidedPiece]) -> None:
        """Encode everything; `forced_cuts` counts where no cut was certain to leave the tokens unchanged."""
        buffer = ""
        for side, text, last in pieces:
            if side != self._side:
                self._flush()
                self._side = side
            buffer = buffer + text if buffer else text
            while len(buffer) > PIECE + AHEAD:
                cut = self._cut(buffer, last)
                if not cut:
                    break
                self._add(buffer[:cut], False)
                buffer = buffer[cut:]
            if last:
                self._add(buffer, True)
                buffer = ""
        self._flush()

    def _cut(self, buffer: str, complete: bool) -> int:
        """Return where to cut the beginning off `buffer`; 0: nowhere yet, or (where it is `complete`) not needed."""
        near = PIECE
        while near <= len(buffer) - AHEAD:
            if cut := self.tokenizer.safe_cut(buffer, near):
                return cut
            near *= 2
        if len(buffer) <= UNCUT or (complete and len(buffer) <= 2 * UNCUT):
            return 0
        self.forced_cuts += 1
        return UNCUT

    def _add(self, text: str, last: bool) -> None:
        self._texts.append(text)
        self._lasts.append(last)
        self._collected += len(text)
        if self._collected >= BATCH or len(self._texts) >= BATCH_TEXTS:
            self._flush()

    def _flush(self) -> None:
        if not self._texts:
            return
        self.writers[self._side].add(self._texts, self.tokenizer.encode_many(self._texts), self._lasts)
        self._done += self._collected
        self._texts = []
        self._lasts = []
        self._collected = 0
        self.progress(self._done)


class Meter:
    """Says how far a long job is, every few seconds: share done, and millions of characters each second."""

    def __init__(self, what: str, total: int, say: Callable[[str], None], every: float = 2.0) -> None:
        self.what = what
        self.total = total
        self.say = say
        self.every = every
        self.begun = self.said = time.monotonic()

    def __call__(self, done: int) -> None:
        """`done` characters are behind us."""
        now = time.monotonic()
        if now - self.said >= self.every:
            self.said = now
            speed = done / 1e6 / (now - self.begun)
            self.say(f"{self.what}: {done / max(self.total, 1):.0%}, {speed:.1f} million characters/s")
