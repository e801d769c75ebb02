"""Hash a text, to check whether a run was trained on it."""

from __future__ import annotations

from pathlib import Path

from glassformer.base.config import DataConfig
from glassformer.text.locating import is_encoded
from glassformer.text.prepare import open_prepared
from glassformer.text.records import RecordKind
from glassformer.text.source import hash_of_sources, open_sources


def text_hash(kind: RecordKind, data: DataConfig, cache: Path) -> str:
    """Return the hash of the text that `data` names, as recorded in a run's manifest, without encoding the text.

    Args:
        kind: the kind of records to read from the text.
        data: the source and how to read it.
        cache: folder for input that cannot be read twice, such as standard input.

    Raises:
        GlassError: the text cannot be read.
    """
    folder = Path(data.source).expanduser()
    if kind.running_text and is_encoded(folder):
        return open_prepared(kind, folder).text_hash
    with open_sources(kind, data, cache) as (source, validation_source):
        return hash_of_sources(source, validation_source)
