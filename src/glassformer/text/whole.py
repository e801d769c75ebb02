"""Data that is only measured, never learnt from: encoded whole with tokenizers that exist already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.config import PAIRS, DataConfig, Task
from glassformer.base.errors import GlassError, nearest
from glassformer.text.documents import kept_pieces, survey
from glassformer.text.encode import Encoder
from glassformer.text.example_notes import unseen_notes
from glassformer.text.example_source import open_examples
from glassformer.text.examples import ExampleStore, ExampleWriter
from glassformer.text.reading import open_source
from glassformer.text.split import SidedPiece
from glassformer.text.store import StoreWriter, TokenStore
from glassformer.text.tally import Tally
from glassformer.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class WholeText:
    """Hold a text that was encoded to be measured.

    Attributes:
        store: all its documents.
        text_hash: sha256 of the source's content, as in the manifest of a run that was trained on it.
        left_out: number of documents that are not in the store, by reason.
        notes: notes on the reading for the user, documents left out included.
    """

    store: TokenStore
    text_hash: str
    left_out: dict[str, int]
    notes: list[str]


def encode_whole(data: DataConfig, tokenizer: Tokenizer, folder: Path) -> WholeText:
    """Encode all documents of a source as one token store in `folder`.

    Raises:
        GlassError: the source cannot be read, or holds no text.
    """
    with open_source(data, folder) as source:
        found = survey(source, data)
        writer = StoreWriter(folder / "text", tokenizer)
        try:
            pieces = kept_pieces(source, data, found, marks=False)
            Encoder(tokenizer, {"train": writer, "validation": writer}).encode(
                SidedPiece("validation", piece.text, piece.last) for piece in pieces
            )
            writer.close()
        finally:
            writer.abandon()
        notes = [*source.notes, *found.tally.notes()]
        return WholeText(TokenStore.open(folder / "text"), source.digest, dict(found.left_out), notes)


def encode_examples(
    task: Task, data: DataConfig, tokenizers: tuple[Tokenizer, Tokenizer], labels: Sequence[str], folder: Path
) -> tuple[ExampleStore, list[str]]:
    """All examples of `data.source` as one store in `folder`, and what a person should know of the reading.

    Args:
        tokenizers: of the sources and of the targets (labelled texts: twice that of the texts).
        labels: those that were learnt, in the order of their indices; examples with another one are left out.

    Raises:
        GlassError: the source cannot be read, or holds no example that can be used.
    """
    known = {name: index for index, name in enumerate(labels)} if task not in PAIRS else None
    tally = Tally()
    unseen = Counter[str]()
    with open_examples(task, data, folder) as source:
        writer = ExampleWriter(folder / "examples", tokenizers, known)
        try:
            for text, answer in source.examples(tally):
                if known is not None and answer not in known:
                    unseen[answer] += 1
                else:
                    writer.add(text, answer)
            kind = "pairs" if known is None else "labelled texts"
            notes = [*source.notes, f"{len(writer):,} {kind}", *tally.notes(), *unseen_notes(unseen, labels)]
            if not len(writer):
                raise _never_learnt(source.name, unseen, labels) if unseen else tally.nothing(source.name)
            writer.close()
        finally:
            writer.abandon()
    return ExampleStore.open(folder / "examples").read_with(*tokenizers), notes


def _never_learnt(name: str, unseen: Counter[str], labels: Sequence[str]) -> GlassError:
    label = unseen.most_common(1)[0][0]
    return GlassError(f"no label of {name} was learnt: its most frequent one is {label!r}", nearest(label, labels))
