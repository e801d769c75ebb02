"""A look at a source before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.documents import kept_pieces, survey
from glassformer.data.prepare import survey_notes
from glassformer.data.reading import open_source
from glassformer.data.split import plan_split

SHOWN = 200  # characters of each document shown


@dataclass(frozen=True)
class Look:
    """What a source holds: its size, what was noticed, and how its first documents begin."""

    documents: int
    characters: int
    notes: list[str]
    beginnings: list[str]


def look(data: DataConfig, cache: Path, beginnings: int = 3) -> Look:
    """Read a source, count its documents and plan its split; nothing is kept.

    Raises:
        GlassError: as `prepare` does, of a source that cannot be read or split.
    """
    with open_source(data, cache) as source:
        found = survey(source, data)
        notes = [*source.notes, *survey_notes(found), plan_split(found, data).note]
        firsts = (piece.text[:SHOWN] for piece in kept_pieces(source, data, found, marks=False) if piece.first)
        return Look(found.documents, found.characters, notes, list(islice(firsts, beginnings)))
