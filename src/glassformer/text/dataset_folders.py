"""Folders of data sets: the files that hold the data, and the split (train, validation, test) of each file."""

from __future__ import annotations

import mimetypes
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

from glassformer.base.wording import counted, listed
from glassformer.text.locating import Located

Part = Literal["train", "validation", "test"]
KEYWORDS: dict[str, Part] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "holdout", "heldout"), "test"),
}
"""The words in the names of files and folders that name a split, as in the library datasets of Hugging Face."""
KEYWORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(KEYWORDS, key=len, reverse=True))})(?![a-z])")
PREFERENCE: dict[Part, tuple[Part, ...]] = {
    "train": ("train",),
    "validation": ("validation", "test"),
    "test": ("test", "validation", "train"),
}
"""The split to read for training, for validation and for an evaluation: the first that the folder has."""
SIDE_NAME = re.compile(r"(readme|licen[cs]e|copying|notice|citation|changelog|contributing|authors|datasheet)\b")
SIDE_SUFFIXES = frozenset((".json", ".yaml", ".yml", ".toml", ".cff", ".bib", ".lock"))
SIDE_TYPES = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip")
DATASET_FILES = frozenset(("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"))
"""Files that the library datasets writes beside its tables."""
SHARD = re.compile(r"-\d{5}-of-\d{5}\b")  # in the names of the tables that it writes
TABLE = re.compile(r"\.(csv|tsv|jsonl?|ndjson|parquet|arrow)(\.gz)?")
CACHED = re.compile(r"(cache|tmp)-?\w*\.arrow")  # intermediate results that it leaves in the folder


def split_of(name: str) -> Part | None:
    """Return the split that the first word of a relative path names; None if it names no split."""
    match = KEYWORD.search(name.lower())
    return KEYWORDS[match[1]] if match else None


def without_split(name: str) -> str:
    """Return a relative path without its first folder if that folder is named after a split."""
    folder, _, rest = name.partition("/")
    return rest if rest and folder.lower() in KEYWORDS else name


def is_dataset(names: Iterable[str], tables: Iterable[str]) -> bool:
    """Return whether the text of a folder is in its tables.

    The library datasets wrote the folder, or all other files only describe the data: a README, a license, JSON, images.

    Args:
        names: relative paths of all files of the folder.
        tables: relative paths of the tables among them.
    """
    table_names = set(tables)
    others = [PurePosixPath(name.lower()) for name in names if name not in table_names]
    if not table_names:
        return False
    if any(path.name in DATASET_FILES for path in others) or any(map(SHARD.search, table_names)):
        return True
    return all(
        SIDE_NAME.match(path.name)
        or path.suffix in SIDE_SUFFIXES
        or (mimetypes.guess_type(path.name)[0] or "").startswith(SIDE_TYPES)
        for path in others
    )


def is_json_lines(name: str) -> bool:
    """Return whether a file of a data set has rows as JSON, and not facts on the data set."""
    path = PurePosixPath(name.lower().removesuffix(".gz"))
    return path.suffix == ".json" and path.name not in DATASET_FILES


def is_cached(name: str) -> bool:
    """Return whether a file is an intermediate result of the library datasets, not data."""
    return CACHED.fullmatch(PurePosixPath(name).name) is not None


def with_split(location: Located, part: Part, held_out: bool) -> Located:
    """Return the files of one split if a folder has a training split and another one; else, all files.

    Files that are numbered as the library datasets does are another split even if their name is not known, such as
    unsupervised. A note says if a table is named as another split, but none as the training split.

    Args:
        location: the located source.
        part: the use of the split (see `PREFERENCE`).
        held_out: whether the split for validation is read separately, if `part` is train.
    """
    splits = {name: split_of(name) for _, name in location.files}
    found = set(splits.values()) - {None}
    numbered = any(split is None and SHARD.search(name) for name, split in splits.items())
    if not location.folder or "train" not in found or (len(found) < 2 and not numbered):
        named = [name for name, split in splits.items() if split not in (None, "train") and TABLE.search(name.lower())]
        if not location.folder or not named or len(named) == len(splits):
            return location
        note = f"{listed(named, 4)} is read as training data too: no file is named as the training split"
        return replace(location, notes=[*location.notes, note])
    known = len(found) > 1
    chosen = next(split for split in PREFERENCE[part] if split in found) if known else "train"
    used = {chosen}
    if part == "train" and held_out and known:
        used.add(next(split for split in PREFERENCE["validation"] if split in found))
    files = tuple((path, name) for path, name in location.files if splits[name] == chosen)
    notes = [f"the split {chosen} is read"]
    counts = Counter(split or "others" for split in splits.values() if split not in used)
    if counts:
        listing = ", ".join(f"{split} ({counted(count, 'files')})" for split, count in sorted(counts.items()))
        notes.append(f"left out the files of other splits: {listing}")
    # Without another known split, a part of the training split is held out.
    return replace(location, files=files, split=chosen if known else None, notes=[*location.notes, *notes])
