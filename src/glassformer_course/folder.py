"""The learner's folder: one file for each exercise started, and `course.json`, which records the progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors, write_text
from glassformer.base.locks import output_lock
from glassformer.base.wording import LEVELS, quoted
from glassformer_course.course import all_exercises, find
from glassformer_course.exercise import HINTS, Exercise
from glassformer_course.judging.verdict import Verdict
from glassformer_course.notebooks import notebook

STATE = "course.json"
VERSION = 1  # format of course.json
LOCK_TIMEOUT = 10.0  # seconds to wait for the lock that another process holds
DEFAULT = Path("glass-learn")


@dataclass
class Record:
    """Progress in one exercise: solved or not, numbers of checks and hints, and whether the solution was shown.

    `hints` is the number of the last hint since the exercise was started; `hints_seen` and `solution_seen` stay when it
    is started again.
    """

    done: bool = False
    attempts: int = 0
    hints: int = 0
    hints_seen: int = 0
    solution_seen: bool = False


def chosen_folder(folder: str | None) -> Path:
    """Return `folder` (`--folder`), else the current folder if it is a course folder, else `glass-learn`."""
    if folder is not None:
        return Path(folder)
    return Path() if (Path() / STATE).is_file() else DEFAULT


def folder_option(folder: Path) -> str:
    """Return the option, with a space before it, that selects a course folder in a command.

    For the folder that commands use by default, return an empty string.
    """
    return "" if folder == chosen_folder(None) else f" --folder {quoted(folder)}"


class CourseFolder:
    """Folder of a learner: a file for each exercise started, and `course.json` with the progress.

    course.json contains a digest of its content, so that a change by an editor is noticed. The digest needs no secret:
    a program can compute it again.

    Args:
        path: the folder; created when the first file is written.

    Raises:
        GlassError: `path` is a file, or course.json is damaged, unreadable or from a later version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        state = self._read_state()
        names = state.get("exercises") or [exercise.name for exercise in all_exercises()]
        self.exercises: list[Exercise] = [find(name) for name in names]
        self.text_file: str | None = state.get("text")
        self.level: str = state.get("level", "student")
        self.records = {name: Record(**facts) for name, facts in state.get("records", {}).items()}
        self.edited = _is_edited(state)
        """Whether course.json was ever changed by another program, such as an editor."""

    def record(self, exercise: Exercise) -> Record:
        """Return the progress in an exercise."""
        return self.records.setdefault(exercise.name, Record())

    def current(self) -> Exercise | None:
        """Return the first unfinished exercise, or None if all are done."""
        return next((each for each in self.exercises if not self.record(each).done), None)

    def text(self) -> str | None:
        """Return the text supplied with the assignment, or None if the assignment has none.

        Raises:
            GlassError: the file of the text is missing or not UTF-8.
        """
        if self.text_file is None:
            return None
        path = self.path / self.text_file
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise GlassError(
                f"cannot read {path}, the text of this course: {reason}", "Copy the file from the assignment again."
            ) from None

    def file(self, exercise: Exercise, suffix: str = ".py") -> Path:
        """Return the path of the answer to an exercise."""
        return self.path / (exercise.file_name + suffix)

    def start(self, exercise: Exercise) -> Path:
        """Write the stub and return its path; keep an existing file."""
        path = self.file(exercise)
        if not path.exists():
            self._write(path, exercise.stub)
        with self._locked_update():
            return path

    def start_notebook(self, exercise: Exercise) -> Path:
        """Write the notebook and return its path; keep an existing file."""
        path = self.file(exercise, ".ipynb")
        if not path.exists():
            self._write(path, notebook(exercise, self.level))
        with self._locked_update():
            return path

    def reset(self, exercise: Exercise) -> tuple[Path, Path | None]:
        """Write a new stub, rename the old file, and reset the progress in the exercise.

        Returns:
            The path of the stub, and the new path of the old file, or None if there was no old file.
        """
        path = self.file(exercise)
        with self._locked_update():
            existed = path.exists()
            old_paths = (path.with_name(f"{exercise.file_name}.old-{n}.py") for n in count(1))
            old_path = next(each for each in old_paths if not each.exists())
            if existed:
                with convert_os_errors(path):
                    path.rename(old_path)
            self._write(path, exercise.stub)
            record = self.record(exercise)
            self.records[exercise.name] = Record(hints_seen=record.hints_seen, solution_seen=record.solution_seen)
        return path, old_path if existed else None

    def note(self, verdict: Verdict) -> None:
        """Record the result of a check. An exercise that was once solved stays solved."""
        with self._locked_update():
            record = self.records.setdefault(verdict.name, Record())
            record.attempts += 1
            record.done = record.done or verdict.passed

    def next_hint(self, exercise: Exercise) -> int:
        """Return the number of the next hint; after the last hint, return its number again."""
        return min(self.record(exercise).hints + 1, HINTS)

    def note_hint(self, exercise: Exercise, number: int) -> None:
        """Record that a hint was shown."""
        with self._locked_update():
            record = self.record(exercise)
            record.hints = max(record.hints, number)
            record.hints_seen = max(record.hints_seen, number)

    def note_solution(self, exercise: Exercise) -> None:
        """Record that the solution was shown."""
        with self._locked_update():
            self.record(exercise).solution_seen = True

    @contextmanager
    def _locked_update(self) -> Iterator[None]:
        """Reload the records, let the caller change them, and save them, under a lock between processes."""
        with output_lock(self.path / STATE, "--folder", LOCK_TIMEOUT):
            state = self._read_state()
            self.records = {name: Record(**facts) for name, facts in state.get("records", {}).items()}
            self.edited = _is_edited(state)
            yield
            self._save()

    def _save(self) -> None:
        state: dict[str, Any] = {"version": VERSION, "level": self.level}
        if [each.name for each in self.exercises] != [each.name for each in all_exercises()]:
            state["exercises"] = [each.name for each in self.exercises]
        if self.text_file is not None:
            state["text"] = self.text_file
        state["records"] = {name: asdict(record) for name, record in self.records.items() if record != Record()}
        if self.edited:
            state["edited"] = True
        state["digest"] = _digest(state)
        self._write(self.path / STATE, json.dumps(state, indent=1) + "\n")

    def _write(self, path: Path, text: str) -> None:
        with convert_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)

    def _read_state(self) -> dict[str, Any]:
        path = self.path / STATE
        if self.path.exists() and not self.path.is_dir():
            raise GlassError(f"{self.path} is a file", "Name a folder: --folder FOLDER.")
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            newer = type(state["version"]) is int and state["version"] > VERSION
            if not newer:
                _validate_state(state)
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, GlassError):
            check_command = f"glass learn check --all --folder {quoted(self.path)}"
            raise GlassError(
                f"{path} is damaged", f"Move it away; your answers are kept. To check them again: {check_command}"
            ) from None
        except OSError as error:
            raise GlassError(f"cannot read {path}: {error.strerror}", "Move it away; your answers are kept.") from None
        if newer:
            raise GlassError(f"{path} was written by a later version of glassformer", "Install that version.")
        return dict(state)


def _digest(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content of course.json without its digest."""
    content = {name: value for name, value in state.items() if name != "digest"}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_edited(state: Mapping[str, Any]) -> bool:
    return bool(state) and (state.get("digest") != _digest(state) or state.get("edited", False))


def _validate_state(state: dict[str, Any]) -> None:
    """Raise an error if `state` is not valid content of course.json."""
    if state["version"] != VERSION or type(state["version"]) is not int:
        raise ValueError(state["version"])
    for facts in state.get("records", {}).values():
        if any(type(value) is not type(vars(Record())[name]) for name, value in vars(Record(**facts)).items()):
            raise TypeError(facts)
    for name in state.get("exercises", []):
        find(name)
    text = state.get("text")
    if state.get("level", LEVELS[0]) not in LEVELS or (text is not None and Path(text).name != text):
        raise ValueError(text)
