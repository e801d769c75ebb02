"""Find the text of a run after the run, its text, or both were moved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from glassformer.base.config import DataConfig
from glassformer.corpora import CORPORA
from glassformer.runs.folder import Run

SOURCES = ("source", "target", "validation", "validation_target")
"""Settings of `data` whose files are searched for."""


def token_cache(folder: Path) -> Path:
    """Return the folder of encoded texts for a run in `folder`; it is beside the run, so that runs share it."""
    return folder.resolve().parent / ".tokens"


def token_folders(run: Run) -> list[Path]:
    """Return the folders that may contain the run's encoded text: the recorded folder and the one in `token_cache`."""
    recorded = Path(run.manifest()["data"]["tokens"])
    return list(dict.fromkeys((recorded, token_cache(run.folder) / recorded.name)))


def candidate_texts(run: Run, data: DataConfig, named_paths: Mapping[str, str]) -> Iterator[DataConfig]:
    """Yield the settings of `data` with each set of existing files that may be the run's text.

    The files are searched for at the paths in the settings, then at the same paths relative to the folder that contains
    the run and to the folder above, then by name in these two folders. They may contain another text, so the caller
    must compare hashes.

    Args:
        run: the run, which may have been moved.
        data: the run's settings of `data`.
        named_paths: `source` and `target` given by the user, which are used unchanged.
    """
    recorded_paths = {name: value for name in SOURCES if (value := getattr(data, name)) is not None}
    tried: list[dict[str, str]] = []
    for number in range(_CANDIDATES):
        paths = {
            name: named_paths.get(name) or _candidate_paths(run, value)[number]
            for name, value in recorded_paths.items()
        }
        paths |= named_paths
        searched = [value for name, value in paths.items() if name not in named_paths]
        if paths not in tried and all(value in CORPORA or Path(value).expanduser().exists() for value in searched):
            tried.append(paths)
            yield data.replace(**paths)


_CANDIDATES = 5


def _candidate_paths(run: Run, source: str) -> list[str]:
    """Return the `_CANDIDATES` paths at which a file of a run's text may be, likeliest first."""
    path = Path(source).expanduser()
    current_folder = run.folder.resolve().parent
    # The parent folder of the run when it was created.
    original_folder = Path(run.manifest()["data"]["tokens"]).parent.parent
    relative_path = path
    if path.is_absolute() and path.anchor == original_folder.anchor:
        relative_path = Path(os.path.relpath(path, original_folder))
    bases = (current_folder, current_folder.parent)
    return [source, *(os.path.normpath(base / tail) for tail in (relative_path, path.name) for base in bases)]
