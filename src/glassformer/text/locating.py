"""Locate a source by its name: a file, a folder, `-` for standard input, or a generated corpus."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors
from glassformer.base.wording import counted, listed

BLOCK = 1 << 20
SHOWN_NAMES = 5


@dataclass(frozen=True)
class Located:
    """A located source: a generated corpus, or files in reading order, with their names for messages."""

    corpus: str | None = None
    files: tuple[tuple[Path, str], ...] = ()
    folder: bool = False
    temporary: Path | None = None
    """Folder with a copy of standard input or of a pipe, to be deleted when the work is done."""
    split: str | None = None
    """The split that the files belong to, if a folder has several."""
    notes: list[str] = field(default_factory=list)


def is_encoded(folder: Path) -> bool:
    """Return whether a folder contains split and encoded text (see `prepare.Prepared`)."""
    return (folder / "prepared.json").is_file() and (folder / "train.ds").is_file()


def is_stream(source: str) -> bool:
    """Return whether a source can be read only once: standard input, a pipe or a device."""
    path = Path(source).expanduser()
    return source == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def locate(source: str, cache: Path) -> Located:
    """Locate a source. Input that cannot be read twice (`-`, pipes) is copied into the folder `cache`.

    Raises:
        GlassError: there is no such source (the error suggests the nearest file or corpus, if one is near), it is a
            folder without files to read or with encoded text, or standard input is closed or is the keyboard.
    """
    from glassformer.corpora import corpus_names

    path = Path(source).expanduser()
    if source == "-":
        return _locate_standard_input(cache)
    if source in corpus_names():
        note = f"{source} is taken as the generated corpus; write .{os.sep}{source} for the file or folder"
        return Located(corpus=source, notes=[note] if path.exists() else [])
    if not source or "\0" in source:
        raise GlassError(f"the source {source!r} is not a path", _allowed_sources(corpus_names()))
    with convert_os_errors(path):
        if path.is_dir():
            return _locate_folder(path)
        if path.is_file():
            return Located(files=((path, _readable(path.name)),))
        if path.exists():  # a pipe or a device
            with path.open("rb") as stream:
                return _spool(stream, cache, str(path))
    raise GlassError(f"{source} does not exist", _suggestion(path, corpus_names()))


@contextmanager
def located(source: str, cache: Path) -> Iterator[Located]:
    """Locate a source as `locate` does; delete a copy of standard input or a pipe at the end of the `with` block."""
    location = locate(source, cache)
    try:
        yield location
    finally:
        if location.temporary:
            shutil.rmtree(location.temporary, ignore_errors=True)


def _allowed_sources(corpora: list[str]) -> str:
    return f"Give a file, a folder, - for standard input, or a generated corpus ({', '.join(sorted(corpora))})."


def _suggestion(path: Path, corpora: list[str]) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"There is no folder {folder} either. {_allowed_sources(corpora)}"
    try:
        siblings = {name: str(folder / name) for name in sorted(entry.name for entry in folder.iterdir())}
    except OSError:
        siblings = {}
    names = siblings if len(path.parts) > 1 else {**siblings, **{name: name for name in corpora}}
    matches = difflib.get_close_matches(path.name, sorted(names), n=1, cutoff=0.6)
    return f"Did you mean {names[matches[0]]}?" if matches else _allowed_sources(corpora)


def _locate_folder(folder: Path) -> Located:
    """Return all files below `folder`, sorted by name at each level, and note the entries that are left out.

    Hidden entries, broken links, links to folders (which may form a cycle), and pipes and devices (which may block) are
    left out. `__pycache__` folders are left out without a note.
    """
    if is_encoded(folder):
        raise GlassError(
            f"{folder} contains an encoded text (token ids), not a text",
            "Use it only with glass train or glass plan and --task lm or masked. Give other commands the text itself.",
        )
    located_files: list[tuple[Path, str]] = []
    unreadable: list[str] = []
    hidden = 0

    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        hidden += sum(name.startswith(".") for name in (*folders, *files))
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in (*folders, *files):
            path = Path(parent) / name
            relative_name = _readable(path.relative_to(folder).as_posix())
            reason = "" if name.startswith(".") else _why_not_read(path)
            if reason:
                unreadable.append(f"{relative_name} ({reason})")
            elif path.is_file() and not name.startswith("."):
                located_files.append((path, relative_name))
    left_out = f": left out {listed(sorted(unreadable), SHOWN_NAMES)}" if unreadable else ""
    if not located_files:
        raise GlassError(
            f"the folder {folder} contains no files to read{left_out}", "Put text files (.txt, .md, .csv ...) into it."
        )
    located_files.sort(key=lambda entry: entry[1].split("/"))
    notes = [f"left out {counted(hidden, 'hidden entries', 'hidden entry')} of {folder}"] if hidden else []
    if unreadable:
        entries = counted(len(unreadable), "entries", "entry")
        notes.append(
            f"left out {entries} of {folder} that cannot be read as files: {listed(sorted(unreadable), SHOWN_NAMES)}"
        )
    return Located(files=tuple(located_files), folder=True, notes=notes)


def _readable(name: str) -> str:
    """Return the name of a file with its bytes that are not UTF-8 as escapes, so that it can be written in a note."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _why_not_read(path: Path) -> str:
    """Return the reason why an entry of a folder is not read; empty for files and folders that are read."""
    if path.is_symlink() and not path.exists():
        return "a broken link"
    if path.is_symlink() and path.is_dir():
        return "a link to a folder"
    if not path.is_file() and not path.is_dir():
        return "a pipe or a device"
    return ""


def _locate_standard_input(cache: Path) -> Located:
    stream = sys.stdin
    if stream is None or stream.closed:
        raise GlassError("standard input is closed", "Pipe text into the command, or name a file.")
    if stream.isatty():
        raise GlassError(
            "standard input is the keyboard", "Pipe text into the command (cat FILE | glass ... -), or name a file."
        )
    return _spool(stream.buffer, cache, "standard input")


def _spool(stream: IO[bytes], cache: Path, name: str) -> Located:
    """Copy a stream that can be read only once into a file of the same name, in a new folder in `cache`."""
    with convert_os_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="incoming-", dir=cache))
    path = folder / Path(name).name
    try:
        with convert_os_errors(path), path.open("wb") as copy:
            while block := stream.read(BLOCK):
                copy.write(block)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Located(files=((path, name),), temporary=folder)
