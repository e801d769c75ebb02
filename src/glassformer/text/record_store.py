"""Examples on disk: pairs of source and target, or labelled texts; as tokens, and as the texts they were.

A side called NAME is: `NAME.sources` and (pairs) `NAME.targets`, two token stores with one document per example;
(labelled texts) `NAME.labels.npy`, the index of each example's label as little-endian int32; and `NAME.texts.jsonl`,
`[source, target or label]` in each line.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from glassformer.base.files import clear_disk_errors, sha256, sync
from glassformer.text.encode import BATCH, BATCH_TEXTS
from glassformer.text.store import DamagedStoreError, Ids, StoreWriter, TokenStore
from glassformer.text.tokenizers import Frame, Tokenizer


@dataclass(frozen=True)
class ExampleStore:
    """One side's examples. Reading maps the files; memory does not grow with them.

    Attributes:
        sources: one document per example, each ended by its tokenizer's end token.
        targets: the same number of documents in the same order; None for labelled texts.
        labels: (examples,) index of each label; None for pairs.
        texts_file: the same examples as text.
        frame: around a source as the model reads it, where its tokenizer says so; None: as the task has it.
        target_start: what a target begins with; empty: the end token.
    """

    sources: TokenStore
    targets: TokenStore | None
    labels: npt.NDArray[np.integer[Any]] | None
    texts_file: Path | None = None
    frame: Frame | None = None
    target_start: tuple[int, ...] = ()

    @classmethod
    def open(cls, prefix: Path) -> ExampleStore:
        """Map the side NAME = `prefix`.

        Raises:
            DamagedStoreError: a file is missing or not as it was written.
        """
        sources = TokenStore.open(part(prefix, "sources"))
        labels_file = part(prefix, "labels.npy")
        targets = None
        labels = None
        if labels_file.exists():
            try:
                labels = np.load(labels_file, mmap_mode="r", allow_pickle=False)
            except (ValueError, EOFError):
                raise damaged(prefix, f"{labels_file.name} is not usable") from None
            answers = len(labels)
        else:
            targets = TokenStore.open(part(prefix, "targets"))
            answers = len(targets.document_ends)
        texts_file = part(prefix, "texts.jsonl")
        if answers != sources.documents or not texts_file.is_file():
            raise damaged(prefix, "its parts do not belong together")
        return cls(sources, targets, labels, texts_file)

    def __len__(self) -> int:
        return self.sources.documents

    def read_with(self, source_tokenizer: Tokenizer, tokenizer: Tokenizer) -> ExampleStore:
        """Return the same examples, framed as these tokenizers say."""
        return replace(self, frame=source_tokenizer.frame, target_start=tokenizer.target_start)

    @property
    def around(self) -> int:
        """Return the tokens that stand around a source, or before a target: the larger number."""
        return max(1 if self.frame is None else len(self.frame), len(self.target_start) if self.targets else 0)

    def source(self, index: int) -> Ids:
        """The tokens of one source, without the end token."""
        return _document(self.sources, index)

    def target(self, index: int) -> Ids:
        """The tokens of one target, without the end token.

        Raises:
            ValueError: these are labelled texts.
        """
        if self.targets is None:
            raise ValueError("labelled texts have no targets")
        return _document(self.targets, index)

    @cached_property
    def source_lengths(self) -> npt.NDArray[np.int64]:
        """(examples,) tokens of each source, without the end token."""
        return _lengths(self.sources)

    @cached_property
    def target_lengths(self) -> npt.NDArray[np.int64]:
        """(examples,) tokens of each target, without the end token; none for labelled texts."""
        return _lengths(self.targets) if self.targets is not None else np.zeros(0, np.int64)

    @property
    def text_hash(self) -> str:
        """Return a hash of the texts of all sources and targets, in order."""
        stores = [self.sources] if self.targets is None else [self.sources, self.targets]
        return hashlib.sha256(" ".join(store.text_hash for store in stores).encode("ascii")).hexdigest()

    @property
    def target_bytes(self) -> int:
        """UTF-8 bytes of all targets; 0 for labelled texts."""
        return self.targets.bytes if self.targets is not None else 0

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each example's source and target (or the name of its label) as they stand in the data, in order."""
        if self.texts_file is None:
            raise ValueError("this store was made without its texts")
        with clear_disk_errors(self.texts_file), self.texts_file.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                source, target = json.loads(line)
                yield source, target


@dataclass(frozen=True)
class PreparedExamples:
    """Prepared examples for training.

    Attributes:
        tokenizer: of the targets (pairs) or of the texts; trained on the training part only.
        source_tokenizer: of the sources; the same object where there is one vocabulary.
        train, validation: the two sides.
        labels: their names, sorted; label `i` is `labels[i]`. None for pairs: ().
        folder: where all of it lies; `open_prepared_examples(folder)` opens it again without the source.
        text_hash: sha256 over the content of all sources.
        reused: nothing had to be made.
        notes: what a person should know: columns, examples left out, the split, repeats, tokens, unknown share.
        unknown_share: of the training part's tokens, those that are the unknown token.
    """

    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    train: ExampleStore
    validation: ExampleStore
    labels: tuple[str, ...]
    folder: Path
    text_hash: str
    reused: bool
    notes: list[str]
    unknown_share: float


class ExampleWriter:
    """Writes one side from beginning to end. `close` makes it complete, `abandon` gives it up.

    Memory grows by the four bytes of each label.

    Args:
        tokenizers: of the sources and of the targets.
        labels: index by name; None for pairs.
    """

    def __init__(self, prefix: Path, tokenizers: tuple[Tokenizer, Tokenizer], labels: Mapping[str, int] | None) -> None:
        self.prefix = prefix
        self.tokenizers = tokenizers
        self.labels = labels
        self.sums: dict[str, tuple[int, str]] = {}
        self._open = ExitStack()
        self.sources = self._store("sources", tokenizers[0])
        self.targets = self._store("targets", tokenizers[1]) if labels is None else None
        self._texts: IO[bytes] = self._open.enter_context(part(prefix, "texts.jsonl").open("wb"))
        self._texts_sum = hashlib.sha256()
        self._indices = array("i")
        self._batch: list[tuple[str, str]] = []
        self._collected = 0

    def _store(self, name: str, tokenizer: Tokenizer) -> StoreWriter:
        writer = StoreWriter(part(self.prefix, name), tokenizer)
        self._open.callback(writer.abandon)
        return writer

    def __len__(self) -> int:
        return self.sources.documents + len(self._batch)

    @property
    def unknown_share(self) -> float:
        """Return the share of unknown tokens among the tokens written, end tokens not counted."""
        stores = [store for store in (self.sources, self.targets) if store is not None]
        tokens = sum(store.tokens - store.documents for store in stores)
        return sum(store.unknown for store in stores) / max(1, tokens)

    def add(self, source: str, target: str) -> None:
        """Append one example; `target` is the name of a label that is known, for labelled texts."""
        self._batch.append((source, target))
        self._collected += len(source) + len(target)
        if self._collected >= BATCH or len(self._batch) >= BATCH_TEXTS:
            self._flush()

    def _flush(self) -> None:
        if not self._batch:
            return
        sources, targets = map(list, zip(*self._batch, strict=True))
        lasts = [True] * len(sources)
        self.sources.add(sources, self.tokenizers[0].encode_many(sources), lasts)
        if self.targets is not None:
            self.targets.add(targets, self.tokenizers[1].encode_many(targets), lasts)
        if self.labels is not None:
            self._indices.extend(self.labels[name] for name in targets)
        lines = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in self._batch).encode("utf-8")
        self._texts.write(lines)
        self._texts_sum.update(lines)
        self._batch = []
        self._collected = 0

    def abandon(self) -> None:
        """Close the files without making a side of them."""
        self._open.close()

    def close(self) -> None:
        """Flush everything to the disk; `sums` then has the size and sha256 of the files that are no stores."""
        self._flush()
        texts = part(self.prefix, "texts.jsonl")
        labels = part(self.prefix, "labels.npy")
        self._texts.close()
        sync(texts)
        self.sums = {texts.name: (texts.stat().st_size, self._texts_sum.hexdigest())}
        self.sources.close()
        if self.targets is not None:
            self.targets.close()
        if self.labels is not None:
            with labels.open("wb") as file:
                np.save(file, np.array(self._indices, dtype="<i4"), allow_pickle=False)
            sync(labels)
            self.sums[labels.name] = (labels.stat().st_size, sha256(labels))


def part(prefix: Path, name: str) -> Path:
    """The file or store called `name` of the side NAME = `prefix`."""
    return prefix.with_name(f"{prefix.name}.{name}")


def damaged(place: Path, why: str) -> DamagedStoreError:
    """The error for prepared examples that cannot be used."""
    return DamagedStoreError(
        f"the prepared examples in {place} are damaged: {why}", "Prepare them again from their source."
    )


def _bounds(store: TokenStore, index: int) -> tuple[int, int]:
    if not 0 <= index < store.documents:
        raise IndexError(index)
    return int(store.document_ends[index - 1]) if index else 0, int(store.document_ends[index])


def _document(store: TokenStore, index: int) -> Ids:
    start, stop = _bounds(store, index)
    return store.tokens[start : stop - 1]


def _lengths(store: TokenStore) -> npt.NDArray[np.int64]:
    ends = np.array(store.document_ends, dtype=np.int64)
    ends[1:] -= ends[:-1].copy()
    return ends - 1
