"""Find the answers that a class handed in: folders, zip files and loose files, as learning platforms deliver them."""

from __future__ import annotations

import os
import re
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer_course.exercise import Exercise
from glassformer_course.folder import STATE

ANSWER = re.compile(r"(?:(?P<student>.+)[ _.-])?(?P<name>\d\d_[a-z_]+)(?:[ _-]?\(?\d+\)?)?\.(?:py|ipynb)")
"""Name of a file with an answer; Canvas puts the student before it, browsers a number such as ` (1)` after it."""
PLATFORM = re.compile(r"(?P<name>.+?)(?:_assignsubmission_\w+|(?:_LATE)?(?P<user>_\d+)_\d+)")
"""A student's name as Moodle or Canvas extends it; Canvas's second number is different for each file."""
LARGEST_ZIP = 200 << 20  # bytes of the files in a zip file


@dataclass(frozen=True)
class HandedFile:
    """A file of a student: where it is, and its path as the teacher knows it."""

    path: Path
    shown: str

    def answers(self, exercise: Exercise) -> bool:
        """Return whether the file has the name of an answer to the exercise."""
        match = ANSWER.fullmatch(self.path.name)
        return match is not None and match["name"] == exercise.file_name


@dataclass
class Submission:
    """The files of one student, and the problems with zip files that cannot be read."""

    student: str
    files: list[HandedFile] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, path: Path, shown_from: Path, scratch: Path) -> None:
        """Add a file, or all files in a folder; zip files are extracted into `scratch`."""
        for file in _files(path):
            shown = file.relative_to(shown_from).as_posix()
            if file.suffix.lower() != ".zip":
                self.files.append(HandedFile(file, shown))
                continue
            folder = scratch / str(len(list(scratch.iterdir())))
            if problem := _extract(file, folder):
                self.problems.append(f"{shown}: {problem}")
            self.files += [
                HandedFile(each, f"{shown}/{each.relative_to(folder).as_posix()}") for each in _files(folder)
            ]


def submissions(path: Path, scratch: Path) -> tuple[list[Submission], list[str]]:
    """Return the submissions sorted by student, and the names of files that belong to no student.

    A subfolder or a zip file is a submission, named after the student. A loose file belongs to the student whose name
    precedes the name of an answer, such as `ana_02_softmax.py`; without a student's name, and in a course folder, the
    files form one submission named after `path`. Names that begin with `.` or `__` are left out.

    Args:
        path: a folder, or a zip file with such a folder.
        scratch: an empty folder for the content of zip files.

    Raises:
        GlassError: `path` is missing, cannot be read, or contains no submission.
    """
    if not path.exists():
        raise GlassError(f"there is no folder {path}", "Name a folder or a zip file with the submissions.")
    folder = path
    name = path.resolve().name
    if path.is_file():
        folder = scratch / "all"
        name = path.stem
        if problem := _extract(path, folder):
            raise GlassError(f"{path}: {problem}", "Name a folder or a zip file with the submissions.")
        while len(inner := _entries(folder)) == 1 and inner[0].is_dir() and not any(map(_is_plain, _entries(inner[0]))):
            folder = inner[0]  # the folder of the class, which was compressed
    found: dict[str, Submission] = {}
    ignored = []
    whole = (folder / STATE).is_file()
    for entry in _entries(folder):
        match = ANSWER.fullmatch(entry.name)
        if whole or _is_plain(entry):
            student = name
        elif entry.is_dir():
            student = entry.name
        elif match or entry.suffix.lower() == ".zip":
            student = match["student"] if match else entry.stem
        else:
            ignored.append(entry.name)
            continue
        if platform := PLATFORM.fullmatch(student.rstrip("_")):
            student = platform["name"] + (platform["user"] or "")
        submission = found.setdefault(student, Submission(student))
        submission.add(entry, entry if entry.is_dir() and not whole else folder, scratch)
    if not found:
        raise GlassError(
            f"{path} contains no submissions",
            "Put each student's files in a subfolder or a zip file, or the student's name before the file's: "
            "ana_02_softmax.py",
        )
    return [found[student] for student in sorted(found)], ignored


def _is_plain(path: Path) -> bool:
    """Return whether a file has the name of an answer, without a student's name before it."""
    match = ANSWER.fullmatch(path.name)
    return path.is_file() and match is not None and match["student"] is None


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or all files in a folder and the folders inside it; links inside it are left out."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for entry in _entries(path):
            if not entry.is_symlink():
                yield from _files(entry)


def _extract(file: Path, folder: Path) -> str:
    """Extract answers, records and inner zip files of a zip file; return what prevents it, or an empty string."""
    folder.mkdir()
    try:
        with zipfile.ZipFile(file) as archive:
            wanted = [
                each for each in archive.infolist() if each.filename.lower().endswith((".py", ".ipynb", ".zip", STATE))
            ]
            if sum(each.file_size for each in wanted) > LARGEST_ZIP:
                return f"its files have more than {LARGEST_ZIP >> 20} MB"
            for member in wanted:
                extracted = archive.extract(member, folder)
                with suppress(OverflowError, ValueError):  # a date that does not exist
                    saved = time.mktime((*member.date_time, 0, 0, -1))
                    os.utime(extracted, (saved, saved))
    except (zipfile.BadZipFile, RuntimeError, OSError, ValueError, EOFError, zlib.error) as error:
        return f"it cannot be read as a zip file: {error}"  # RuntimeError: it needs a password
    return ""
