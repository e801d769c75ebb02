"""Training and validation part, decided before any window is cut, so that nothing of one is seen in the other.

Several documents are held out whole: the last ones, or a random draw in which a document's side follows from a hash of
its text (equal documents fall on the same side). A single document is cut near its end.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

from glassformer.config import DataConfig
from glassformer.data.documents import KeptPiece, Survey
from glassformer.errors import GlassError

Side = Literal["train", "validation"]
JOINERS = "\u200c\u200d"


class SidedPiece(NamedTuple):
    """Some text of one document of one side; `last`: the document ends with it."""

    side: Side
    text: str
    last: bool


@dataclass(frozen=True)
class Split:
    """Where validation begins. Characters and buckets are those of the `Survey`.

    Attributes:
        held_from: tail: documents that start at this character or after it are held out.
        inside: tail: the document that holds that character is cut there.
        bucket: random: documents in this bucket of hashes or a lower one are held out (-1: a tail split).
        limit: random: validation ends after this many characters.
        note: the split in words.
    """

    held_from: int
    inside: bool
    bucket: int
    limit: int
    note: str


def plan_split(found: Survey, data: DataConfig) -> Split:
    """Decide what is held out.

    Raises:
        GlassError: the text is too short to be split, or has one distinct document and a random split is asked for.
    """
    if data.split == "random" and found.documents > 1:
        return _random(found, data)
    total = found.characters
    wanted = total - int(total * (1 - data.validation_fraction))
    held = min(wanted, data.validation_limit)
    if min(held, total - held) < 1 or total < 2:
        raise GlassError(
            f"{total:,} characters are too few to be split: {data.validation_fraction:g} of them is {held:,}",
            "Give a longer text, or change data.validation_fraction.",
        )
    start, several = total - held, found.documents > 1
    if several and found.last_start >= start:
        return Split(start, False, -1, 0, "validation: the last documents")
    if several and found.last_length <= min(data.validation_limit, total // 2):
        return Split(found.last_start, False, -1, 0, "validation: the last document")
    which = "of the last document (too long to be held out whole)" if several else "of the text"
    odd = "; one document cannot be split at random" if data.split == "random" else ""
    return Split(start, True, -1, 0, f"validation: the end {which}{odd}")


def _random(found: Survey, data: DataConfig) -> Split:
    """Hold out the documents with the lowest hashes: the share asked for, within the limit, never all of them."""
    documents = list(accumulate(found.bucket_documents))
    characters = list(accumulate(found.bucket_characters))
    filled = [bucket for bucket, count in enumerate(found.bucket_documents) if count]
    if len(filled) < 2:
        raise GlassError(
            f"all {found.documents:,} documents are the same text: a random split cannot keep them apart",
            "Give different documents, or set data.split to tail.",
        )
    wanted = max(1, round(data.validation_fraction * found.documents))
    choices = [bucket for bucket in filled[:-1] if characters[bucket] <= data.validation_limit] or filled[:1]
    bucket = next((b for b in choices if documents[b] >= wanted), choices[-1])
    return Split(0, False, bucket, data.validation_limit, f"validation: documents drawn at random, seed {data.seed}")


def sided(pieces: Iterable[KeptPiece], split: Split) -> Iterator[SidedPiece]:
    """Each piece with its side; the documents of both sides come in the order of the source."""
    return _by_bucket(pieces, split) if split.bucket >= 0 else _by_position(pieces, split)


def _by_bucket(pieces: Iterable[KeptPiece], split: Split) -> Iterator[SidedPiece]:
    room = split.limit
    for text, _, _, last, mark in pieces:
        if mark >> 48 > split.bucket:
            yield SidedPiece("train", text, last)
            continue
        # Only a first document longer than the limit is cut here; the rest of it is used nowhere.
        if room:
            yield SidedPiece("validation", text[:room], last or len(text) >= room)
            room = max(0, room - len(text))


def _by_position(pieces: Iterable[KeptPiece], split: Split) -> Iterator[SidedPiece]:
    position, crossed = 0, False  # position: of the piece's first character
    for text, start, first, last, _ in pieces:
        if first:
            position, crossed = start, start >= split.held_from
        if split.inside and not crossed and position + len(text) > split.held_from:
            cut = clean_cut(text, split.held_from - position)
            yield SidedPiece("train", text[:cut], True)
            yield SidedPiece("validation", text[cut:], last)
            crossed = True
        else:
            yield SidedPiece("validation" if crossed else "train", text, last)
        position += len(text)


def clean_cut(text: str, near: int) -> int:
    """The last position from `near` back at which no combining mark is parted from its letter, nor `\\r` from `\\n`."""
    for position in range(near, max(0, near - 64), -1):
        if position == len(text):
            return position
        after, before = text[position], text[position - 1]
        joined = after in JOINERS or before in JOINERS or unicodedata.category(after).startswith("M")
        if not joined and not (before == "\r" and after == "\n") and unicodedata.combining(before) != 9:
            return position
    return near
