"""Encode records into stores. Long texts are encoded in pieces, which give the same tokens except at forced cuts."""

from __future__ import annotations

import hashlib
import json
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from glassformer.base.files import sha256, sync
from glassformer.text.record_store import part, token_prefixes
from glassformer.text.records import RecordKind, Spans
from glassformer.text.special_names import id_of_mark, parts_of
from glassformer.text.store import StoreWriter

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizer

PIECE = 128_000  # characters in one piece of a long text
AHEAD = 4_000  # characters needed after a cut to check that it is safe
UNCUT = 4_000_000  # a text without a safe position to cut is cut after this many characters anyway
BATCH = 512_000  # characters, over all roles, passed to the tokenizer at once
BATCH_TEXTS = 8192
LINES = 1024  # of texts.jsonl, written at once


def no_progress(characters: int) -> None:
    """Ignore the number of newly encoded characters."""


class RecordWriter:
    """Writer that encodes records into a record store. `close` completes the store; `abandon` leaves it incomplete.

    Memory grows by 4 bytes for each label, by 8 for each record that may have several labels, and by 1 for each token
    of a text with loss spans.

    Args:
        kind: the kind of records.
        prefix: path prefix of the store, as in `RecordStore.open`.
        tokenizers: tokenizer of each role.
        labels: index of each label by name; None for records without labels.
        progress: function that receives the number of newly encoded characters.
        store: the class that writes a token store.
    """

    def __init__(
        self,
        kind: RecordKind,
        prefix: Path,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, int] | None = None,
        progress: Callable[[int], None] = no_progress,
        store: type[StoreWriter] = StoreWriter,
    ) -> None:
        self.prefix = prefix
        self.labels = labels
        self.stores: dict[str, StoreWriter] = {}
        self.sums: dict[str, tuple[int, str]] = {}
        self._open_files = ExitStack()
        self._encoders: list[TextEncoder] = []
        self._loss_mask = array("B") if kind.loss_spans else None
        for role, name in zip(kind.roles, token_prefixes(kind, prefix), strict=True):
            self.stores[role] = store(name, tokenizers[role])
            self._open_files.callback(self.stores[role].abandon)
            mask = self._loss_mask if role == kind.roles[-1] else None
            batch = BATCH // len(kind.roles)
            self._encoders.append(TextEncoder(tokenizers[role], self.stores[role], progress, batch, mask))
        self._texts_file: IO[bytes] | None = None
        if not kind.running_text:
            self._texts_file = self._open_files.enter_context(part(prefix, "texts.jsonl").open("wb"))
        self._texts_hash = hashlib.sha256()
        self._lines: list[str] = []
        self._label_indices = array("i")
        self._label_ends = array("Q") if kind.labels == "several" else None

    @property
    def records(self) -> int:
        """Return the number of records; valid after `close`."""
        return min(store.documents for store in self.stores.values())

    @property
    def forced_cuts(self) -> int:
        """Return the number of cuts in long texts that may have changed a token."""
        return sum(encoder.forced_cuts for encoder in self._encoders)

    def add(
        self, texts: tuple[str, ...], labels: tuple[str, ...] = (), last: bool = True, loss_spans: Spans = ()
    ) -> None:
        """Append a record, or a piece of a running text.

        Args:
            texts: text of each role.
            labels: names of the labels, all of which must be in `self.labels`.
            last: for running text, whether the piece ends its document; otherwise True.
            loss_spans: spans of the last text that contribute to the loss, for kinds of records with loss spans.
        """
        for encoder, text in zip(self._encoders, texts, strict=False):
            if encoder.loss_mask is not None:
                encoder.add_with_spans(text, loss_spans)
            else:
                encoder.add(text, last)
        if self._texts_file is not None:
            self._lines.append(json.dumps(texts + labels, ensure_ascii=False))
            if len(self._lines) >= LINES:
                self._write_lines(self._texts_file)
        if self.labels is not None:
            self._label_indices.extend(self.labels[name] for name in labels)
        if self._label_ends is not None:
            self._label_ends.append(len(self._label_indices))

    def _write_lines(self, file: IO[bytes]) -> None:
        data = "".join(f"{line}\n" for line in self._lines).encode("utf-8")
        file.write(data)
        self._texts_hash.update(data)
        self._lines = []

    def abandon(self) -> None:
        """Close the files without completing the store."""
        self._open_files.close()

    def close(self) -> None:
        """Write everything to disk, and set `sums` to the size and SHA-256 of each file except the token stores."""
        for encoder in self._encoders:
            encoder.flush()
        if self._texts_file is not None:
            self._write_lines(self._texts_file)
            self._texts_file.close()
            path = part(self.prefix, "texts.jsonl")
            sync(path)
            self.sums[path.name] = (path.stat().st_size, self._texts_hash.hexdigest())
        for store in self.stores.values():
            store.close()
        if self.labels is not None:
            self._save("labels.npy", np.array(self._label_indices, dtype="<i4"))
        if self._label_ends is not None:
            self._save("label_ends.npy", np.array(self._label_ends, dtype="<u8"))
        if self._loss_mask is not None:
            self._save("loss_mask.npy", np.array(self._loss_mask, dtype=np.bool_))

    def _save(self, name: str, values: npt.NDArray[Any]) -> None:
        path = part(self.prefix, name)
        with path.open("wb") as file:
            np.save(file, values, allow_pickle=False)
        sync(path)
        self.sums[path.name] = (path.stat().st_size, sha256(path))


class TextEncoder:
    """Encoder that writes the texts of one role to a token store, in order and in batches.

    `forced_cuts` counts the cuts that may have changed a token.

    Args:
        tokenizer: tokenizer of the role.
        writer: writer of the store.
        progress: function that receives the number of newly encoded characters.
        batch: number of characters passed to the tokenizer at once.
        loss_mask: array to extend by 1 for every token that contributes to the loss, and by 0 for every other token;
            None: all tokens contribute.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        writer: StoreWriter,
        progress: Callable[[int], None],
        batch: int,
        loss_mask: array[int] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.writer = writer
        self.progress = progress
        self.batch = batch
        self.forced_cuts = 0
        self._pending_text = ""  # the beginning of a text whose end is not known yet
        self.loss_mask = loss_mask
        self._texts: list[str] = []
        self._lasts: list[bool] = []
        self._in_loss: list[bool] = []
        self._collected_characters = 0

    def add_with_spans(self, text: str, spans: Spans) -> None:
        """Append a whole text, in which only the tokens in `spans` contribute to the loss.

        The text is cut at the borders of spans and around marks, and each piece is encoded separately, so no token
        crosses the border of a span. A mark becomes the token that it represents. The end token after the text counts
        if the last piece is in a span and is not a mark.
        """
        borders = [0, *(border for span in spans for border in span), len(text)]
        pieces = [
            (piece, number % 2 == 1)
            for number, (start, stop) in enumerate(pairwise(borders))
            for piece in parts_of(text[start:stop])
        ]
        for number, (piece, in_loss) in enumerate(pieces, start=1):
            self._collect(self._cut_pieces(piece, True, in_loss), number == len(pieces), in_loss)

    def add(self, text: str, last: bool) -> None:
        """Append a text, or a piece of a text; `last` marks the last piece."""
        if self._pending_text:
            text = self._pending_text + text
            self._pending_text = ""
        if len(text) > PIECE + AHEAD:
            text = self._cut_pieces(text, last)
        if last:
            self._collect(text, True)
        else:
            self._pending_text = text

    def _cut_pieces(self, text: str, complete: bool, in_loss: bool = True) -> str:
        """Cut as many pieces as possible off the beginning of a long text, and return the rest."""
        while len(text) > PIECE + AHEAD and (cut := self._piece_length(text, complete)):
            self._collect(text[:cut], False, in_loss)
            text = text[cut:]
        return text

    def _piece_length(self, text: str, complete: bool) -> int:
        """Return the length of the piece to cut off `text`; 0 if there is no safe cut and a cut need not be forced."""
        target = PIECE
        while target <= len(text) - AHEAD:
            if cut := self.tokenizer.safe_cut(text, target):
                return cut
            target *= 2
        if len(text) <= UNCUT or (complete and len(text) <= 2 * UNCUT):
            return 0
        self.forced_cuts += 1
        return UNCUT

    def _collect(self, text: str, last: bool, in_loss: bool = True) -> None:
        self._texts.append(text)
        self._lasts.append(last)
        self._in_loss.append(in_loss)
        self._collected_characters += len(text)
        if self._collected_characters >= self.batch or len(self._texts) >= BATCH_TEXTS:
            self.flush()

    def flush(self) -> None:
        """Encode and write the collected texts."""
        if not self._texts:
            return
        ids = self.tokenizer.encode_many(self._texts)
        if self.loss_mask is not None:
            for number, text in enumerate(self._texts):
                id = id_of_mark(text, self.tokenizer)
                if id is not None:
                    ids[number] = [id]
                    self._texts[number] = ""
            for text, piece_ids, last, in_loss in zip(self._texts, ids, self._lasts, self._in_loss, strict=True):
                self.loss_mask.extend([in_loss] * len(piece_ids))
                if last:
                    self.loss_mask.append(in_loss and text != "")  # the text of a mark is empty
        self.writer.add(self._texts, ids, self._lasts)
        self.progress(self._collected_characters)
        self._texts = []
        self._lasts = []
        self._in_loss = []
        self._collected_characters = 0


class Meter:
    """Progress meter for a long job. Every few seconds, it reports the percentage done and the speed."""

    def __init__(self, what: str, total: int, say: Callable[[str], None], every: float = 2.0) -> None:
        self.label = what
        self.total = total
        self.report = say
        self.interval = every
        self.done = 0
        self.begun = self.reported = time.monotonic()

    def __call__(self, characters: int) -> None:
        """Count newly processed characters, and report the progress if a report is due."""
        self.done += characters
        now = time.monotonic()
        if now - self.reported >= self.interval:
            self.reported = now
            speed = self.done / 1e6 / (now - self.begun)
            self.report(f"{self.label}: {self.done / max(self.total, 1):.0%}, {speed:.1f} million characters/s")
