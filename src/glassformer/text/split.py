"""Divide data into a training and a validation split before rows are cut, so that no row crosses the border.

`DocumentSplit` is the split of running text. `end` holds out the last `validation_fraction` of the characters, but at
most about `validation_limit`: whole documents if their size is near enough, otherwise one document is cut in two.
`random` holds out `validation_fraction` of the documents, but at most `validation_limit` characters. It chooses
documents by a hash of their text, so that equal documents are in the same split; if there is only one document, it is
cut in two. `rows` keeps all text in both splits; `batches.DocumentRows` divides its rows.

`RecordSplit` is the split of other records. `end` holds out the last records. `random` chooses by a hash of
the first text, so that equal sources are in the same split, even with different targets; of labelled texts, it holds
out about the same fraction of each label. The validation split has at most `validation_limit` characters, counting only
first texts, unless its only record (or, with `random`, its only group of equal sources) is longer.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.records import RecordPiece, Spans
from glassformer.text.survey import KeptPiece, Survey

SplitName = Literal["train", "validation"]
SPLITS: tuple[SplitName, SplitName] = ("train", "validation")
Numbers = npt.NDArray[np.integer[Any]]
HeldOutMask = npt.NDArray[np.bool_]
JOINERS = "\u200c\u200d"
NEAR_ENOUGH = 0.25
"""Maximum relative difference between the number of characters in whole documents and the number to hold out."""
REGIONAL_INDICATORS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
LOOK_BACK = 64  # characters that are searched for a clean position to cut
LOOK_AHEAD = 16  # characters after the cut that determine where a grapheme cluster ends
GRAPHEME = regex.compile(r"\X")


class SplitPiece(NamedTuple):
    """A record, or a piece of its text, and its split. See `RecordPiece` for the other fields."""

    split: SplitName
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    last: bool
    loss_spans: Spans = ()


@dataclass(frozen=True)
class DocumentSplit:
    """The split of running text. Characters and buckets are numbered as in `Survey`.

    Attributes:
        held_from: for `end`, documents that start at this character or later are held out.
        inside: for `end`, whether the document that contains the character `held_from` is cut there.
        bucket: for `random`, documents in this or a lower bucket of hashes are held out; -1: split by position.
        limit: for `random`, the maximum number of validation characters.
        both: for `rows`, whether all text is in both splits, whose rows are divided later.
        note: a description of the split for the user.
    """

    held_from: int
    inside: bool
    note: str
    bucket: int = -1
    limit: int = 0
    both: bool = False

    def split_pieces(self, pieces: Iterable[KeptPiece]) -> Iterator[SplitPiece]:
        """Yield each piece with its split, in the order of the source; validation text beyond `limit` is left out."""
        if self.both:
            return (SplitPiece(split, piece.texts, (), piece.last) for piece in pieces for split in SPLITS)
        return self._by_bucket(pieces) if self.bucket >= 0 else self._by_position(pieces)

    def _by_bucket(self, pieces: Iterable[KeptPiece]) -> Iterator[SplitPiece]:
        remaining = self.limit
        for texts, _, _, last, mark in pieces:
            if mark >> 48 > self.bucket:
                yield SplitPiece("train", texts, (), last)
                continue
            # Text is cut here only if the lowest bucket alone exceeds the limit; the rest is not used.
            if remaining:
                (text,) = texts
                yield SplitPiece("validation", (text[:remaining],), (), last or len(text) >= remaining)
                remaining = max(0, remaining - len(text))

    def _by_position(self, pieces: Iterable[KeptPiece]) -> Iterator[SplitPiece]:
        position = 0  # of the piece's first character
        crossed = False
        for texts, start, first, last, _ in pieces:
            (text,) = texts
            if first:
                position = start
                crossed = start >= self.held_from
            if self.inside and not crossed and position + len(text) > self.held_from:
                near = self.held_from - position
                cut = clean_cut(text, near)
                yield SplitPiece("train", (text[:cut],), (), True)
                yield SplitPiece("validation", (text[cut:],), (), last)
                crossed = True
            else:
                yield SplitPiece("validation" if crossed else "train", texts, (), last)
            position += len(text)


@dataclass(frozen=True)
class RecordSplit:
    """The split of records other than running text.

    Attributes:
        held_out: (records,) True where a kept record of the source is held out.
        labels: the index of each label of the training split, by name; None for records without labels.
        name: name of the source.
    """

    held_out: HeldOutMask
    labels: Mapping[str, int] | None
    name: str

    def split_pieces(self, records: Iterable[RecordPiece]) -> Iterator[SplitPiece]:
        """Yield each record with its split; validation records with labels outside the training split are left out.

        Raises:
            GlassError: the source has more records than when it was surveyed.
        """
        held_out = self.held_out
        for number, (_, texts, labels, _, _, _, loss_spans) in enumerate(records):
            if number >= len(held_out):
                raise GlassError(f"{self.name} changed while it was read", "Run the same command again.")
            if not held_out[number]:
                yield SplitPiece("train", texts, labels, True, loss_spans)
            elif self.knows(labels):
                yield SplitPiece("validation", texts, labels, True, loss_spans)

    def validation(self, records: Iterable[RecordPiece]) -> Iterator[SplitPiece]:
        """Yield the records of a separate validation source whose labels are all in the training split."""
        known_records = (each for each in records if self.knows(each.labels))
        return (SplitPiece("validation", each.texts, each.labels, True, each.loss_spans) for each in known_records)

    def knows(self, labels: tuple[str, ...]) -> bool:
        """Return whether all these labels are in the training split."""
        return self.labels is None or all(label in self.labels for label in labels)


Split = DocumentSplit | RecordSplit


def split_documents(survey: Survey, data: DataConfig) -> DocumentSplit:
    """Decide which characters of running text to hold out.

    Raises:
        GlassError: the text is too short to be split, or all documents are equal and a random split is requested.
    """
    if data.split == "random" and survey.records > 1:
        return _random_documents(survey, data)
    if data.split == "rows":
        note = (
            f"validation: {data.validation_fraction:.0%} of the rows of the whole text, drawn at random, seed "
            f"{data.seed}: training rows contain most of the validation targets, so the validation loss rewards "
            "memorization"
        )
        return DocumentSplit(survey.characters, False, note, both=True)
    total = survey.characters
    requested = total - int(total * (1 - data.validation_fraction))
    held_out = min(requested, data.validation_limit)  # characters
    if min(held_out, total - held_out) < 1 or total < 2:
        raise GlassError(
            f"the text is too short to split: validation would get {held_out:,} of "
            f"{counted(total, 'characters')}, "
            f"training {total - held_out:,}",
            "Give a longer text, or lower data.validation_fraction.",
        )
    if survey.records == 1:
        exception = "; one document cannot be split at random" if data.split == "random" else ""
        return DocumentSplit(total - held_out, True, f"validation: the end of the text{exception}")
    boundary = _near_boundary(survey, held_out, data.validation_limit)
    if boundary is None:
        return DocumentSplit(total - held_out, True, "validation: the end of the text, with one document cut in two")
    which = "document" if boundary == survey.last_start else "documents"
    return DocumentSplit(boundary, False, f"validation: the last {which}")


def _near_boundary(survey: Survey, held_out: int, limit: int) -> int | None:
    """Return the document start nearest to `held_out` characters before the end.

    At most `limit` characters follow this start. Return None if no start is near enough.
    """
    total = survey.characters
    index = bisect_left(survey.starts, total - held_out)
    candidates = [start for start in survey.starts[max(0, index - 1) : index + 1] if start > 0]
    near = [
        start
        for start in candidates
        if abs(total - start - held_out) <= NEAR_ENOUGH * held_out and 0 < total - start <= limit
    ]
    return min(near, key=lambda start: abs(total - start - held_out), default=None)


def _random_documents(survey: Survey, data: DataConfig) -> DocumentSplit:
    """Hold out the documents with the lowest hashes: the requested fraction, within the limit, never all documents."""
    documents = list(accumulate(survey.bucket_documents))
    characters = list(accumulate(survey.bucket_characters))
    filled = [bucket for bucket, count in enumerate(survey.bucket_documents) if count]
    if len(filled) < 2:
        raise GlassError(
            f"all {survey.records:,} documents are the same text: a random split puts equal documents in the same "
            "split",
            "Give different documents, or set data.split = end.",
        )
    requested = max(1, round(data.validation_fraction * survey.records))
    choices = [bucket for bucket in filled[:-1] if characters[bucket] <= data.validation_limit] or filled[:1]
    bucket = next((b for b in choices if documents[b] >= requested), choices[-1])
    note = f"validation: documents drawn at random, seed {data.seed}"
    return DocumentSplit(0, False, note, bucket=bucket, limit=data.validation_limit)


def clean_cut(text: str, near: int) -> int:
    """Return the last position at or before `near` that is not inside a grapheme cluster, such as a flag.

    A letter is not separated from its mark or joiner either, nor `\\r` from `\\n`. Return `near` if there is no such
    position within `LOOK_BACK` characters.
    """
    begin = max(0, near - 2 * LOOK_BACK)
    while begin > 0 and text[begin] in REGIONAL_INDICATORS:
        begin -= 1  # two indicators form a flag; which two depends on where their sequence begins
    window = text[begin : near + LOOK_AHEAD]
    ends = {begin + cluster.end() for cluster in GRAPHEME.finditer(window)}
    for position in range(near, max(0, near - LOOK_BACK), -1):
        if position in ends and _is_clean(text, position):
            return position
    return near


def _is_clean(text: str, position: int) -> bool:
    if position == len(text):
        return True
    after = text[position]
    before = text[position - 1]
    joined = after in JOINERS or before in JOINERS or unicodedata.category(after).startswith("M")
    return not joined and not (before == "\r" and after == "\n") and unicodedata.combining(before) != 9


def split_records(survey: Survey, data: DataConfig, name: str, separate_validation: bool = False) -> RecordSplit:
    """Choose the records to hold out; none if there is a separate validation source.

    Raises:
        GlassError: the records cannot be split, or a classifier cannot learn from their labels.
    """
    labelled = survey.kind.labels != "none"
    if labelled:
        _refuse_useless_labels(survey, name)
    held_out = np.zeros(survey.records, dtype=np.bool_) if separate_validation else hold_out(survey, data)
    if not labelled:
        return RecordSplit(held_out, None, name)
    label_numbers = np.frombuffer(survey.label_numbers, dtype=np.int32)
    training_labels = set(np.unique(label_numbers[~held_out[survey.label_owners()]]).tolist())
    names = sorted(name for name, number in survey.label_names.items() if number in training_labels)
    if len(names) < 2:
        raise GlassError(
            f"the training split of {name} has only one label: {names[0]!r}",
            "Set data.split to random: the file may be sorted by label.",
        )
    return RecordSplit(held_out, {name: index for index, name in enumerate(names)}, name)


def _refuse_useless_labels(survey: Survey, name: str) -> None:
    """Raise a `GlassError` if there is only one label, or if no label occurs twice."""
    if len(survey.label_names) == 1:
        only = next(iter(survey.label_names))
        examples = (
            f"all {survey.records:,} examples of {name} have"
            if survey.records > 1
            else f"the only example of {name} has"
        )
        raise GlassError(
            f"{examples} the label {only!r}, so there is nothing to classify{survey.left_out_text}",
            "Give examples of at least two labels.",
        )
    if len(survey.label_names) == len(survey.label_numbers):
        raise GlassError(
            f"{name} has {len(survey.label_names):,} distinct labels in {survey.records:,} examples: no label "
            f"occurs twice{survey.left_out_text}",
            "Give several examples of a label, or set data.label_column to a column whose values repeat.",
        )


def hold_out(survey: Survey, data: DataConfig) -> HeldOutMask:
    """Return a (records,) mask, True for each record to hold out: at least one record, never all.

    Raises:
        GlassError: the records cannot be split.
    """
    if survey.records < 2:
        raise GlassError(
            f"1 example is too few to be split{survey.left_out_text}", "Give more examples, or set data.validation."
        )
    return _random_records(survey, data) if data.split == "random" else _last_records(survey, data)


def _last_records(survey: Survey, data: DataConfig) -> HeldOutMask:
    characters = np.cumsum(np.frombuffer(survey.lengths, dtype=np.uint32)[::-1], dtype=np.int64)
    max_records = int(np.searchsorted(characters, data.validation_limit, side="right"))
    held_out_count = min(round(data.validation_fraction * survey.records), max_records, survey.records - 1)
    held_out = np.zeros(survey.records, dtype=np.bool_)
    held_out[survey.records - max(1, held_out_count) :] = True
    return held_out


def _random_records(survey: Survey, data: DataConfig) -> HeldOutMask:
    """Hold out, for each label, groups of examples with equal sources: the groups with the lowest hashes."""
    text_hashes, group_of_record, counts = np.unique(
        np.frombuffer(survey.marks, dtype=np.uint64), return_inverse=True, return_counts=True
    )
    if len(text_hashes) < 2:
        role = survey.kind.roles[0]
        raise GlassError(
            f"all {survey.records:,} examples have the same {role}: a random split puts examples with equal {role}s "
            f"in the same split{survey.left_out_text}",
            f"Give examples with different {role}s, or set data.split = end.",
        )
    characters = np.zeros(len(text_hashes), dtype=np.int64)
    np.add.at(characters, group_of_record, np.frombuffer(survey.lengths, dtype=np.uint32))
    label_of_group = _label_of_groups(survey, group_of_record, len(text_hashes))
    held_out_groups = np.zeros(len(text_hashes), dtype=np.bool_)
    total = int(characters.sum())
    examples_so_far = 0
    requested = 0
    for number in range(int(label_of_group.max()) + 1):
        members = np.flatnonzero(label_of_group == number)  # in the order of their hashes
        examples_so_far += int(counts[members].sum())
        # Round so that all labels together have the requested fraction.
        requested_so_far = round(data.validation_fraction * examples_so_far)
        max_examples = requested_so_far - requested
        requested = requested_so_far
        max_characters = max(1, data.validation_limit * int(characters[members].sum()) // max(1, total))
        lowest = _lowest_groups(counts[members], characters[members], max_examples, max_characters)
        held_out_groups[members[lowest]] = True
    _keep_every_label(survey, group_of_record, held_out_groups)
    if not held_out_groups.any():
        held_out_groups[_one_to_spare(label_of_group, counts)] = True
    held_out: HeldOutMask = held_out_groups[group_of_record]
    return held_out


def _label_of_groups(survey: Survey, group: Numbers, groups: int) -> Numbers:
    """Return the rank of the rarest label in each group, (groups,); the rarest label of all has rank 0.

    Without labels, all ranks are 0.
    """
    if not survey.label_numbers:
        return np.zeros(groups, dtype=np.int64)
    numbers = np.frombuffer(survey.label_numbers, dtype=np.int32)
    rank = np.empty(len(survey.label_names), dtype=np.int64)
    rank[np.argsort(np.bincount(numbers), kind="stable")] = np.arange(len(survey.label_names))
    label = np.full(groups, len(survey.label_names), dtype=np.int64)
    np.minimum.at(label, group[survey.label_owners()], rank[numbers])
    return label


def _lowest_groups(counts: Numbers, characters: Numbers, max_examples: int, max_characters: int) -> Numbers:
    """Return the indices of the first groups within `max_examples` and `max_characters`; never all groups.

    If the next group does not fit, later groups of one example are taken instead.
    """
    prefix = min(
        int(np.searchsorted(np.cumsum(counts), max_examples, side="right")),
        int(np.searchsorted(np.cumsum(characters), max_characters, side="right")),
        len(counts) - 1,
    )
    examples_left = max_examples - int(counts[:prefix].sum())
    characters_left = max_characters - int(characters[:prefix].sum())
    single_groups = prefix + np.flatnonzero(counts[prefix:-1] == 1)[: max(0, examples_left)]
    single_count = int(np.searchsorted(np.cumsum(characters[single_groups]), characters_left, side="right"))
    return np.concatenate([np.arange(prefix), single_groups[:single_count]])


def _keep_every_label(survey: Survey, group: Numbers, held_out_groups: HeldOutMask) -> None:
    """Move one group back to training for each label that has no training record left."""
    if not survey.label_numbers:
        return
    numbers = np.frombuffer(survey.label_numbers, dtype=np.int32)
    owners = group[survey.label_owners()]  # the group of each label
    training_counts = np.bincount(numbers[~held_out_groups[owners]], minlength=len(survey.label_names))
    for number in np.flatnonzero(training_counts == 0):
        held_out_groups[owners[numbers == number].max()] = False


def _one_to_spare(label: Numbers, counts: Numbers) -> int:
    """Return the smallest group whose label has other groups; among equally small groups, the first."""
    spare = np.flatnonzero(np.bincount(label)[label] > 1)
    if not len(spare):
        raise GlassError(
            "each label has only one distinct text, so there is no text to hold out",
            "Give more texts of each label, or set data.validation.",
        )
    return int(spare[np.argmin(counts[spare])])
