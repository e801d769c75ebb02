"""Encode all records of evaluation data, which is never used for training, with existing tokenizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import counted
from glassformer.text.data_notes import unseen_notes
from glassformer.text.encode import RecordWriter
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RecordKind
from glassformer.text.source import open_source, with_names
from glassformer.text.survey import kept_pieces, kept_records, survey
from glassformer.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class EvaluationData:
    """Encoded evaluation data.

    Attributes:
        store: the records that are not left out.
        text_hash: hash of the source (see `Source.digest`); for running text, equal to the hash in the manifest of a
            run trained on the same text.
        left_out: number of records that are incomplete, of a wrong size or repeated, by reason; records with unknown
            labels are also left out, but only `notes` counts them.
        notes: notes for the user on how the data was read, including records left out.
    """

    store: RecordStore
    text_hash: str
    left_out: dict[str, int]
    notes: list[str]


def encode_evaluation_data(
    kind: RecordKind, data: DataConfig, tokenizers: Mapping[str, Tokenizer], folder: Path, labels: Sequence[str] = ()
) -> EvaluationData:
    """Encode the records of `data.source` as one store in `folder`, without a split.

    Args:
        kind: the kind of records.
        data: the source and how to read it.
        tokenizers: tokenizer of each role.
        folder: folder to write the store to.
        labels: the labels of the training data, in the order of their indices; records with other labels are left out.

    Raises:
        GlassError: the source cannot be read, or has no record that can be used.
    """
    label_indices = {name: index for index, name in enumerate(labels)} if kind.labels != "none" else None
    unseen = Counter[str]()
    with open_source(kind, data, folder, "test") as opened:
        source = with_names(opened, tokenizers[kind.roles[-1]])
        source_survey = survey(source)
        writer = RecordWriter(kind, folder / "whole", tokenizers, label_indices)
        try:
            if kind.running_text:
                for piece in kept_pieces(source, source_survey, marks=False):
                    writer.add(piece.texts, (), piece.last)
            else:
                for record in kept_records(source):
                    unknown_labels = [
                        label for label in record.labels if label_indices is not None and label not in label_indices
                    ]
                    unseen.update(unknown_labels)
                    if not unknown_labels:
                        writer.add(record.texts, record.labels, loss_spans=record.loss_spans)
            writer.close()
            if not writer.records:
                raise _no_known_label(source.name, unseen, labels)
        finally:
            writer.abandon()
        counts = [] if kind.running_text else [counted(writer.records, kind.noun)]
        notes = [*source.notes, *counts, *source_survey.tally.notes(), *unseen_notes(unseen, labels)]
    store = RecordStore.open(kind, folder / "whole")
    if not kind.running_text:
        store = store.read_with(tokenizers[kind.roles[0]], tokenizers[kind.roles[-1]])
    return EvaluationData(store, source.digest, dict(source_survey.left_out), notes)


def _no_known_label(name: str, unseen: Counter[str], labels: Sequence[str]) -> GlassError:
    label = unseen.most_common(1)[0][0]
    return GlassError(
        f"no label of {name} is in the training data; its most frequent label is {label!r}", nearest(label, labels)
    )
