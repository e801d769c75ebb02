"""Record stores: the records of a split on disk, as tokens and, except for running text, also as text.

The record store NAME of running text is the token store NAME. Other records are stored in these files:

- `NAME.sources` and, for pairs, `NAME.targets`; for conversations, `NAME.conversations`: token stores with one document
  per record.
- `NAME.labels.npy`, for records with labels: the index of each label as little-endian int32.
- `NAME.label_ends.npy`, for records with several labels: the position after each record's last label as little-endian
  uint64.
- `NAME.loss_mask.npy`, for records with loss spans: whether each token of the last text contributes to the loss.
- `NAME.texts.jsonl`: the texts and labels of one record in each line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.files import convert_os_errors
from glassformer.text.records import RecordKind
from glassformer.text.store import DamagedStoreError, TokenStore
from glassformer.text.tokenizers import Frame, Tokenizer


@dataclass(frozen=True)
class RecordStore:
    """Records of one split. The files are memory-mapped, so memory use does not grow with their size.

    Attributes:
        kind: the kind of records.
        tokens: token store of each role, with one document per record, each ended by its tokenizer's end token.
        labels: index of each label, record after record: (records,) if each record has one; None: no labels.
        label_ends: (records,) position after each record's last label; None if each record has at most one label.
        loss_mask: (tokens of the last role,) True where a token contributes to the loss, end tokens included; None: the
            records have no loss spans.
        texts_file: the same records as text; None if the texts were not stored.
        frame: ids around a source, if its tokenizer defines them; None: the task defines them.
        target_start: ids at the beginning of a target; empty: the end token.
    """

    kind: RecordKind
    tokens: Mapping[str, TokenStore]
    labels: npt.NDArray[np.integer[Any]] | None = None
    label_ends: npt.NDArray[np.integer[Any]] | None = None
    loss_mask: npt.NDArray[np.bool_] | None = None
    texts_file: Path | None = None
    frame: Frame | None = None
    target_start: tuple[int, ...] = ()

    @classmethod
    def open(cls, kind: RecordKind, prefix: Path) -> RecordStore:
        """Open the record store NAME = `prefix`.

        Raises:
            DamagedStoreError: a file is missing or damaged.
        """
        tokens = dict(zip(kind.roles, map(TokenStore.open, token_prefixes(kind, prefix)), strict=True))
        if kind.running_text:
            return cls(kind, tokens)
        texts_file = part(prefix, "texts.jsonl")
        labels = None
        counts = {store.documents for store in tokens.values()}
        ends = None
        if kind.labels != "none":
            labels = _open_array(prefix, "labels.npy")
        if kind.labels == "several":
            ends = _open_array(prefix, "label_ends.npy")
        if labels is not None:
            counts.add(len(labels) if ends is None else len(ends))
        loss_mask = _open_array(prefix, "loss_mask.npy") if kind.loss_spans else None
        mask_matches = loss_mask is None or len(loss_mask) == len(tokens[kind.roles[-1]])
        if len(counts) != 1 or not mask_matches or not texts_file.is_file():
            raise damaged(prefix, "its files do not match each other")
        return cls(kind, tokens, labels, ends, loss_mask, texts_file)

    def __len__(self) -> int:
        return self.source.documents

    @property
    def source(self) -> TokenStore:
        """Return the tokens of the first text of each record, which the model reads."""
        return self.tokens[self.kind.roles[0]]

    @property
    def target(self) -> TokenStore:
        """Return the tokens of the last text of each record: the target of a pair, else the only text."""
        return self.tokens[self.kind.roles[-1]]

    def read_with(self, source_tokenizer: Tokenizer, tokenizer: Tokenizer) -> RecordStore:
        """Return the same records with the frame and the target start of these tokenizers."""
        return replace(self, frame=source_tokenizer.frame, target_start=tokenizer.target_start)

    @property
    def frame_length(self) -> int:
        """Return the number of tokens around a source or before a target, whichever is larger."""
        before_target = len(self.target_start) if "target" in self.tokens else 0
        return max(1 if self.frame is None else len(self.frame), before_target)

    @property
    def text_hash(self) -> str:
        """Return a hash of all texts, in order."""
        hashes = [store.text_hash for store in self.tokens.values()]
        return hashes[0] if self.kind.running_text else hashlib.sha256(" ".join(hashes).encode("ascii")).hexdigest()

    @property
    def bytes(self) -> int:
        """Return the size of all texts in UTF-8 bytes."""
        return sum(store.bytes for store in self.tokens.values())

    @property
    def unknown_fraction(self) -> float:
        """Return the fraction of tokens that are unknown, over all texts; end tokens are not counted."""
        tokens = sum(len(store) - store.documents for store in self.tokens.values())
        return sum(store.unknown for store in self.tokens.values()) / max(1, tokens)

    def labels_of(self, index: int) -> npt.NDArray[np.integer[Any]]:
        """Return the indices of the labels of one record.

        Raises:
            ValueError: these records have no labels.
        """
        if self.labels is None:
            raise ValueError("these records have no labels")
        if self.label_ends is None:
            return self.labels[index : index + 1]
        start = int(self.label_ends[index - 1]) if index else 0
        return self.labels[start : int(self.label_ends[index])]

    def loss_mask_of(self, index: int) -> npt.NDArray[np.bool_]:
        """Return the loss mask of a record's last text and its end token: True where a token counts; (tokens,)."""
        ends = self.target.document_ends
        start = int(ends[index - 1]) if index else 0
        if self.loss_mask is None:
            return np.ones(int(ends[index]) - start, dtype=np.bool_)
        return self.loss_mask[start : int(ends[index])]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each text, without the end token; (records, roles)."""
        return np.stack([store.lengths for store in self.tokens.values()], axis=1)

    def texts(self) -> Iterator[tuple[str, ...]]:
        """Yield the texts and label names of each record, unchanged and in order.

        Raises:
            ValueError: only the tokens were stored.
        """
        if self.texts_file is None:
            raise ValueError("this store was made without its texts")
        with convert_os_errors(self.texts_file), self.texts_file.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield tuple(json.loads(line))


def token_prefixes(kind: RecordKind, prefix: Path) -> list[Path]:
    """Return the path prefix of each role's token store in the record store NAME = `prefix`."""
    return [part(prefix, name) if name else prefix for name in kind.stores]


def part(prefix: Path, name: str) -> Path:
    """Return the path of the file or token store called `name` in the record store NAME = `prefix`."""
    return prefix.with_name(f"{prefix.name}.{name}")


def damaged(path: Path, why: str) -> DamagedStoreError:
    """Return the error for prepared records that cannot be used."""
    return DamagedStoreError(
        f"the prepared data in {path} cannot be used: {why}", "Prepare the text again from its source."
    )


def _open_array(prefix: Path, name: str) -> npt.NDArray[Any]:
    path = part(prefix, name)
    try:
        values: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise damaged(prefix, f"{path.name} is missing") from None
    except (ValueError, EOFError):
        raise damaged(prefix, f"{path.name} is not valid") from None
    return values
