"""Training and validation part, decided before any window is cut, so that nothing of one is seen in the other.

`end` holds out the last `validation_fraction` of the characters: whole documents if their share is near enough,
otherwise one document is cut in two. `random` holds out whole documents, chosen by a hash of their text, so that equal
documents are on the same side. `tail` is the end as older versions took it: whole documents, whatever their share.
Their runs and encoded texts record `tail`, so that reading the text again splits it at the same position.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

import regex

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.text.documents import KeptPiece, Survey

Side = Literal["train", "validation"]
JOINERS = "\u200c\u200d"
NEAR_ENOUGH = 0.25
"""Whole documents are held out if their share differs from the one asked for by at most this part of it."""
REGIONAL_INDICATORS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
LOOK_BACK = 64  # characters in which a clean position to cut is looked for
LOOK_AHEAD = 16  # characters after the cut that decide where a grapheme cluster ends
GRAPHEME = regex.compile(r"\X")


class SidedPiece(NamedTuple):
    """Some text of one document of one side; `last`: the document ends with it."""

    side: Side
    text: str
    last: bool


@dataclass(frozen=True)
class Split:
    """The start of validation. Characters and buckets are those of the `Survey`.

    Attributes:
        held_from: end, tail: documents that start at this character or after it are held out.
        inside: end, tail: the document that holds that character is cut there.
        clusters: end: the cut is between grapheme clusters.
        bucket: random: documents in this bucket of hashes or a lower one are held out (-1: not a random split).
        limit: random: validation ends after this many characters.
        note: the split in words.
    """

    held_from: int
    inside: bool
    note: str
    clusters: bool = False
    bucket: int = -1
    limit: int = 0


def plan_split(found: Survey, data: DataConfig) -> Split:
    """Decide what is held out.

    Raises:
        GlassError: the text is too short to be split, or has one distinct document and a random split is asked for.
    """
    if data.split == "random" and found.documents > 1:
        return _random(found, data)
    total = found.characters
    wanted = total - int(total * (1 - data.validation_fraction))
    held = min(wanted, data.validation_limit)  # characters
    if min(held, total - held) < 1 or total < 2:
        raise GlassError(
            f"{total:,} characters are too few to be split: {data.validation_fraction:g} of them is {held:,}",
            "Give a longer text, or change data.validation_fraction.",
        )
    return _tail(found, data, held) if data.split == "tail" else _end(found, data, held)


def _end(found: Survey, data: DataConfig, held: int) -> Split:
    """Hold out about `held` characters: from the start of a document if one is near enough, else from inside one."""
    odd = "; one document cannot be split at random" if data.split == "random" else ""
    if found.documents == 1:
        clusters = data.split == "end"
        return Split(found.characters - held, True, f"validation: the end of the text{odd}", clusters=clusters)
    boundary = _near_boundary(found, held, data.validation_limit)
    if boundary is None:
        note = "validation: the end of the text, with one document cut in two"
        return Split(found.characters - held, True, note, clusters=True)
    which = "document" if boundary == found.last_start else "documents"
    return Split(boundary, False, f"validation: the last {which}")


def _near_boundary(found: Survey, held: int, limit: int) -> int | None:
    """Return the start of a document that has about `held` characters from there to the end, and at most `limit`."""
    total = found.characters
    after = bisect_left(found.starts, total - held)
    candidates = [start for start in found.starts[max(0, after - 1) : after + 1] if start > 0]
    near = [
        start for start in candidates if abs(total - start - held) <= NEAR_ENOUGH * held and 0 < total - start <= limit
    ]
    return min(near, key=lambda start: abs(total - start - held), default=None)


def _tail(found: Survey, data: DataConfig, held: int) -> Split:
    """Split as older versions did: whole documents, unless the last one is too long."""
    total = found.characters
    start = total - held
    several = found.documents > 1
    if several and found.last_start >= start:
        return Split(start, False, "validation: the last documents")
    if several and found.last_length <= min(data.validation_limit, total // 2):
        return Split(found.last_start, False, "validation: the last document")
    which = "of the last document (too long to be held out whole)" if several else "of the text"
    return Split(start, True, f"validation: the end {which}")


def _random(found: Survey, data: DataConfig) -> Split:
    """Hold out the documents with the lowest hashes: the share asked for, within the limit, never all of them."""
    documents = list(accumulate(found.bucket_documents))
    characters = list(accumulate(found.bucket_characters))
    filled = [bucket for bucket, count in enumerate(found.bucket_documents) if count]
    if len(filled) < 2:
        raise GlassError(
            f"all {found.documents:,} documents are the same text: a random split cannot keep them apart",
            "Give different documents, or set data.split to end.",
        )
    wanted = max(1, round(data.validation_fraction * found.documents))
    choices = [bucket for bucket in filled[:-1] if characters[bucket] <= data.validation_limit] or filled[:1]
    bucket = next((b for b in choices if documents[b] >= wanted), choices[-1])
    note = f"validation: documents drawn at random, seed {data.seed}"
    return Split(0, False, note, bucket=bucket, limit=data.validation_limit)


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
    position = 0  # of the piece's first character
    crossed = False
    for text, start, first, last, _ in pieces:
        if first:
            position = start
            crossed = start >= split.held_from
        if split.inside and not crossed and position + len(text) > split.held_from:
            near = split.held_from - position
            cut = cluster_cut(text, near) if split.clusters else clean_cut(text, near)
            yield SidedPiece("train", text[:cut], True)
            yield SidedPiece("validation", text[cut:], last)
            crossed = True
        else:
            yield SidedPiece("validation" if crossed else "train", text, last)
        position += len(text)


def clean_cut(text: str, near: int) -> int:
    """The last position from `near` back at which no combining mark is parted from its letter, nor `\\r` from `\\n`."""
    for position in range(near, max(0, near - LOOK_BACK), -1):
        if _is_clean(text, position):
            return position
    return near


def cluster_cut(text: str, near: int) -> int:
    """Return the last clean position at or before `near` that is between grapheme clusters, such as flags."""
    begin = max(0, near - 2 * LOOK_BACK)
    while begin > 0 and text[begin] in REGIONAL_INDICATORS:
        begin -= 1  # two of them make a flag: which two depends on where their sequence begins
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
