"""Survey the records of a source: choose the records to keep, and collect their sizes, hashes and labels."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.duplicates import DuplicateFinder, Sketch
from glassformer.text.left_out import Tally
from glassformer.text.records import RecordKind, RecordPiece
from glassformer.text.source import Source

MOST_MARKS = 8_000_000  # documents of running text whose hashes are kept to count duplicates (64 MB)
MOST_LABELS = 65_536
BUCKETS = 1 << 16
REMEDIES = {
    "with fewer than": "Lower data.min_words.",
    "with more than": "Raise data.max_words.",
    "whose weight is not 0": "Give at least one answer of each conversation the weight 1, or no weight.",
    "object as label": "Write each label as text.",
    "object instead of a text": "Write each text as text; for train.task = chat, write all messages as one list.",
    "that the chat template leaves empty": "Give a template that writes the messages.",
}
"""What to do if no example is kept, by a part of the reason to leave examples out."""
REPEATED = {"exact": "duplicate documents", "near": "duplicate or near-duplicate documents"}


class KeptPiece(NamedTuple):
    """A piece of a kept document of running text.

    Attributes:
        texts, first, last: as in `RecordPiece`.
        start: number of characters in the kept documents before this document.
        mark: the hash of the document; 0 if it was not requested and the document is a single piece.
    """

    texts: tuple[str, ...]
    start: int
    first: bool
    last: bool
    mark: int


@dataclass
class Facts:
    """The sizes, hashes and labels of one record.

    Attributes:
        characters, words, mark: size and hash of the first text; if `facts_of` does not count words, `words` is 1, or 0
            for a blank text.
        bands: hashes that near duplicates share (see `Sketch`); empty if near duplicates are not searched for.
        other_fields: the record's other texts and its labels.
        whole_mark: a hash of all texts and labels of the record.
        position: location of the record in the data, for messages.
    """

    characters: int = 0
    words: int = 0
    mark: int = 0
    bands: bytes = b""
    other_fields: tuple[str, ...] = ()
    whole_mark: int = 0
    position: str = ""


@dataclass
class Survey:
    """Results of one pass over all records. Only kept records are counted, unless noted otherwise.

    Memory: for running text, at most about 130 MB, besides `large` and `repeated`; for other kinds of records, about
    20 bytes for each record, 8 more for each labelled record, and 4 for each label.

    Attributes:
        kind: the kind of records.
        records: number of records.
        characters: number of characters in all first texts.
        other_characters: number of characters in all other texts.
        tally: counts of records and rows that were left out, or were used but need a note.
        marks: the hash of each first text; for running text, of the first `MOST_MARKS` documents.
        starts: for running text, the number of characters before every `start_step`-th document.
        last_length: for running text, the number of characters in the last document.
        large: for running text, the `Facts` of each document that is read in several pieces, by number, because a
            single piece is not enough to decide whether to keep the document.
        bucket_documents, bucket_characters: for running text, documents and characters by the highest 16 bits of the
            hash.
        repeated: a byte for each document, 1 if it repeats an earlier one; empty if duplicates are kept.
        lengths: for other kinds, the number of characters in each first text.
        whole_marks: for other kinds, a hash of each whole record.
        label_names: the number of each label, in order of first appearance.
        label_numbers: the numbers of all labels, record after record.
        label_ends: the number of labels up to the end of each record.
    """

    kind: RecordKind
    records: int = 0
    characters: int = 0
    other_characters: int = 0
    tally: Tally = field(default_factory=Tally)
    marks: array[int] = field(default_factory=lambda: array("Q"))
    starts: array[int] = field(default_factory=lambda: array("Q"))
    start_step: int = 1
    last_length: int = 0
    large: dict[int, Facts] = field(default_factory=dict)
    bucket_documents: array[int] = field(default_factory=lambda: array("Q", bytes(8 * BUCKETS)))
    bucket_characters: array[int] = field(default_factory=lambda: array("Q", bytes(8 * BUCKETS)))
    repeated: bytes = b""
    lengths: array[int] = field(default_factory=lambda: array("I"))
    whole_marks: array[int] = field(default_factory=lambda: array("Q"))
    label_names: dict[str, int] = field(default_factory=dict)
    label_numbers: array[int] = field(default_factory=lambda: array("i"))
    label_ends: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def left_out_text(self) -> str:
        """Return the counts of left out records by reason, to add to an error; an empty string if there are none."""
        reasons = ", ".join(counted(count, reason) for reason, count in sorted(self.left_out.items()))
        return f": left out {reasons}" if reasons else ""

    @property
    def left_out(self) -> Counter[str]:
        """Return the number of records and rows left out, by reason."""
        return self.tally.left_out

    def add(self, number: int, facts: Facts, single_piece: bool, data: DataConfig) -> bool:
        """Count record `number`, and return whether it is kept; `single_piece`: whether it was read in one piece."""
        if not single_piece:
            self.large[number] = facts
        reason = why_left_out(facts.words, facts.characters, facts.other_fields, self.kind, data)
        if not reason and self.repeated and self.repeated[number]:
            reason = REPEATED[data.duplicates]
        if reason:
            self.tally.leave_out(reason, facts.position)
            return False
        if self.kind.running_text:
            self._add_document(facts)
        else:
            self._add_example(facts)
        self.records += 1
        self.characters += facts.characters
        return True

    def _add_document(self, facts: Facts) -> None:
        """Count a document and record its start; if there are too many starts, drop every second start."""
        if self.records % self.start_step == 0:
            self.starts.append(self.characters)
        if len(self.starts) > MOST_MARKS:
            self.starts = self.starts[::2]
            self.start_step *= 2
        self.last_length = facts.characters
        self.bucket_documents[facts.mark >> 48] += 1
        self.bucket_characters[facts.mark >> 48] += facts.characters
        if len(self.marks) < MOST_MARKS:
            self.marks.append(facts.mark)

    def _add_example(self, facts: Facts) -> None:
        self.marks.append(facts.mark)
        self.whole_marks.append(facts.whole_mark)
        self.lengths.append(facts.characters)
        other_texts = len(self.kind.roles) - 1
        self.other_characters += sum(len(part) for part in facts.other_fields[:other_texts])
        if self.kind.labels != "none":
            self.add_labels(facts.other_fields[other_texts:])

    def add_labels(self, labels: Sequence[str]) -> None:
        """Count the labels of the next record."""
        for label in labels:
            self.label_numbers.append(self.label_names.setdefault(label, len(self.label_names)))
        self.label_ends.append(len(self.label_numbers))

    @property
    def last_start(self) -> int:
        """Return the number of characters before the last document."""
        return self.characters - self.last_length

    def label_owners(self) -> npt.NDArray[np.int64]:
        """Return the index of the record of each entry of `label_numbers`; (labels of all records,)."""
        ends = np.frombuffer(self.label_ends, dtype=np.uint64).astype(np.int64)
        return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))

    def label_counts(self) -> npt.NDArray[np.int64]:
        """Return the number of occurrences of each label, in the order of `label_names`; (labels,)."""
        return np.bincount(np.frombuffer(self.label_numbers, dtype=np.int32))

    def raise_if_empty(self, name: str) -> None:
        """Raise a `GlassError` if no record of the source called `name` is kept."""
        if self.records:
            return
        reasons = self.left_out_text
        if self.kind.running_text:
            raise GlassError(
                f"{name} contains no text{reasons}",
                "Give a source with some text, lower data.min_words or data.min_characters, or raise data.max_words.",
            )
        remedies = [remedy for part, remedy in REMEDIES.items() if part in reasons]
        usual = "Give a text, and its target or label, in each row (train.task = chat: a conversation with answers)."
        raise GlassError(f"{name} contains no example that can be used{reasons}", " ".join(remedies or [usual]))


def survey(source: Source, seed: int | None = None) -> Survey:
    """Survey a source in one pass over its records, or in two passes if duplicate documents are left out.

    Args:
        source: the source to read.
        seed: seed of the hashes; None: the seed of the source. Only hashes with equal seeds can be compared.

    Raises:
        GlassError: no record is kept, or there are more than `MOST_LABELS` distinct labels.
    """
    kind = source.kind
    data = source.data if seed is None else source.data.model_copy(update={"seed": seed})
    result = Survey(kind)
    if kind.running_text and data.duplicates != "keep":
        finder = DuplicateFinder()
        for facts, number, _ in facts_of(source.records(Tally()), data, bands=data.duplicates == "near"):
            if not why_left_out(facts.words, facts.characters, facts.other_fields, kind, data):
                finder.add(number, facts.mark, facts.bands)
        result.repeated = finder.duplicate_flags()
    for facts, number, single_piece in facts_of(source.records(result.tally), data):
        result.add(number, facts, single_piece, data)
        if result.label_names and len(result.label_names) > MOST_LABELS:
            raise GlassError(
                f"{source.name} has more than {MOST_LABELS:,} distinct labels in its first {result.records:,} examples",
                "Set data.label_column to a column whose values repeat.",
            )
    result.raise_if_empty(source.name)
    return result


def facts_of(pieces: Iterable[RecordPiece], data: DataConfig, bands: bool = False) -> Iterator[tuple[Facts, int, bool]]:
    """Yield the `Facts` of each record, its number, and whether it was read in one piece.

    Args:
        pieces: pieces of the records.
        data: settings; words are counted if `min_words` or `max_words` is set, and in records of several pieces.
        bands: whether to compute `Facts.bands`.
    """
    counting = counts_words(data)
    facts = Facts()
    empty_hasher = _new_hasher(data.seed)
    hasher = empty_hasher
    in_word = False
    sketch = None
    for number, texts, labels, position, first, last, _ in pieces:
        text = texts[0]
        if first:
            facts = Facts()
            if labels or len(texts) > 1:
                facts.other_fields = texts[1:] + labels
            facts.position = position
            hasher = empty_hasher.copy()
            in_word = False
            sketch = Sketch() if bands else None
        facts.characters += len(text)
        hasher.update(text.encode("utf-8"))
        if sketch is not None:
            sketch.read(text)
        if counting or not (first and last):
            # A word that continues from the piece before is counted once.
            facts.words += len(text.split()) - (in_word and not text[:1].isspace() and bool(text))
            in_word = not text[-1].isspace() if text else in_word
        else:
            facts.words = int(bool(text) and not text.isspace())
        if last:
            facts.mark = int.from_bytes(hasher.digest(), "little")
            facts.whole_mark = facts.mark
            if facts.other_fields:
                hasher.update("\0".join(("", *facts.other_fields)).encode("utf-8"))
                facts.whole_mark = int.from_bytes(hasher.digest(), "little")
            facts.bands = sketch.bands(facts.mark) if sketch is not None else b""
            yield facts, number, first


def counts_words(data: DataConfig) -> bool:
    """Return whether records are left out by their number of words."""
    return data.min_words > 0 or data.max_words is not None


def hash_text(text: str, seed: int) -> int:
    """Return a 64-bit hash of a text, keyed by `seed`; equal texts have equal hashes."""
    return _hash_text(text, _new_hasher(seed))


def _hash_text(text: str, empty_hasher: hashlib.blake2b) -> int:
    hasher = empty_hasher.copy()
    hasher.update(text.encode("utf-8"))
    return int.from_bytes(hasher.digest(), "little")


def _new_hasher(seed: int) -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=8, key=(seed % (1 << 64)).to_bytes(8, "little"))


def why_left_out(
    word_count: int, character_count: int, other_fields: tuple[str, ...], kind: RecordKind, data: DataConfig
) -> str:
    """Return the reason to leave out a record with a blank field or a wrong size; empty if the record is kept.

    Args:
        word_count: number of words in the first text.
        character_count: number of characters in the first text.
        other_fields: the other texts and the labels.
        kind: kind of the record.
        data: the settings.
    """
    if word_count == 0 or (other_fields and not all(map(str.strip, other_fields))):
        return kind.why_incomplete([word_count == 0, *(not part.strip() for part in other_fields)])
    if word_count < data.min_words:
        return f"{'documents' if kind.running_text else 'examples'} with fewer than {data.min_words} words"
    if character_count < data.min_characters:
        return f"documents with fewer than {data.min_characters} characters"
    if data.max_words is not None and word_count > data.max_words:
        return f"{'documents' if kind.running_text else 'examples'} with more than {data.max_words} words"
    return ""


def first_records(source: Source) -> Iterator[tuple[str, ...]]:
    """Yield the texts and labels of each record that `why_left_out` keeps; for a long text, only its first piece."""
    counting = counts_words(source.data)
    for _, texts, labels, _, first, _, _ in source.records(Tally()):
        if first:
            word_count = len(texts[0].split()) if counting else int(bool(texts[0].strip()))
            if not why_left_out(word_count, len(texts[0]), texts[1:] + labels, source.kind, source.data):
                yield texts + labels


def kept_records(source: Source) -> Iterator[RecordPiece]:
    """Yield the kept records of a source that is not running text, in the order of the survey."""
    data = source.data
    counting = counts_words(data)
    for record in source.records(Tally()):
        _, texts, labels, _, _, _, _ = record
        if not all(map(str.strip, texts + labels if labels else texts)):
            continue
        if not counting or not why_left_out(len(texts[0].split()), len(texts[0]), (), source.kind, data):
            yield record


def kept_pieces(source: Source, survey: Survey, marks: bool) -> Iterator[KeptPiece]:
    """Yield the kept pieces of running text, in the order of the survey; `marks` requests the hashes of documents."""
    return filter_pieces(source.records(Tally()), source.data, survey, marks)


def filter_pieces(
    pieces: Iterable[RecordPiece], data: DataConfig, survey: Survey, marks: bool, start: int = 0
) -> Iterator[KeptPiece]:
    """Yield the kept pieces of running text.

    Args:
        pieces: all pieces, in order.
        data: the settings.
        survey: the survey of the documents.
        marks: whether to compute the hash of each document.
        start: number of characters in kept documents before `pieces`.
    """
    length = 0
    counting = counts_words(data)
    kind = survey.kind
    empty_hasher = _new_hasher(data.seed)
    is_kept = True
    text_hash = 0
    for number, texts, _, _, first, last, _ in pieces:
        if first:
            text = texts[0]
            start += length
            if (facts := survey.large.get(number)) is not None:
                word_count = facts.words
                length = facts.characters
                text_hash = facts.mark
            else:
                word_count = len(text.split()) if counting else int(bool(text) and not text.isspace())
                length = len(text)
                text_hash = _hash_text(text, empty_hasher) if marks else 0
            is_kept = not why_left_out(word_count, length, (), kind, data)
            is_kept = is_kept and not (survey.repeated and survey.repeated[number])
            length = length if is_kept else 0
        if is_kept:
            yield KeptPiece(texts, start, first, last, text_hash)
