"""The learner's folder: a file for each exercise begun, and `course.json`, which keeps what was done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from glassformer.errors import GlassError
from glassformer.files import clear_disk_errors, write_text
from glassformer.learn.course import find, whole
from glassformer.learn.exercise import HINTS, Exercise
from glassformer.learn.judging.verdict import Verdict
from glassformer.learn.notebooks import notebook
from glassformer.wording import quoted

STATE = "course.json"
DEFAULT = Path("glass-learn")


@dataclass
class Record:
    """What is kept of one exercise: whether it is done, checks so far, hints shown, and whether the solution was."""

    done: bool = False
    attempts: int = 0
    hints: int = 0
    solution_seen: bool = False


def chosen_folder(given: str | None) -> Path:
    """`--folder`, else this folder if it is a course's, else `glass-learn`."""
    if given is not None:
        return Path(given)
    return Path() if (Path() / STATE).is_file() else DEFAULT


class CourseFolder:
    """A learner's folder.

    Args:
        path: the folder; made when something is first written.

    Raises:
        GlassError: its course.json is damaged, or from a later version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        state = self._state()
        names = state.get("exercises") or [exercise.name for exercise in whole()]
        self.exercises: list[Exercise] = [find(name) for name in names]
        self.text_file: str | None = state.get("text")
        self.records = {name: Record(**facts) for name, facts in state.get("records", {}).items()}
        self.level: str = state.get("level", "student")

    def record(self, exercise: Exercise) -> Record:
        """What is kept of an exercise."""
        return self.records.setdefault(exercise.name, Record())

    def current(self) -> Exercise | None:
        """The first that is not done; None: all are."""
        return next((each for each in self.exercises if not self.record(each).done), None)

    def text(self) -> str | None:
        """The class's own text, if the folder was assigned with one."""
        if self.text_file is None:
            return None
        path = self.path / self.text_file
        try:
            return path.read_text(encoding="utf-8")
        except OSError:
            raise GlassError(f"the text of this course is missing: {path}", "Copy it from the assignment.") from None

    def file(self, exercise: Exercise, suffix: str = ".py") -> Path:
        """Where its answer is written."""
        return self.path / (exercise.file_name + suffix)

    def start(self, exercise: Exercise) -> Path:
        """Write the stub if there is none. What is there stays."""
        path = self.file(exercise)
        if not path.exists():
            self._write(path, exercise.stub)
        self.save()
        return path

    def start_notebook(self, exercise: Exercise) -> Path:
        """Write the notebook if there is none. What is there stays."""
        path = self.file(exercise, ".ipynb")
        if not path.exists():
            self._write(path, notebook(exercise, self.level))
        self.save()
        return path

    def reset(self, exercise: Exercise) -> tuple[Path, Path | None]:
        """A new stub; the old file is kept beside it. Returns both paths; None: there was no old file."""
        path = self.file(exercise)
        kept = next(name for n in count(1) if not (name := path.with_name(f"{exercise.file_name}.old-{n}.py")).exists())
        there = path.exists()
        if there:
            with clear_disk_errors(path):
                path.rename(kept)
        self.records[exercise.name] = Record()
        return self.start(exercise), kept if there else None

    def note(self, verdict: Verdict) -> None:
        """Keep a check's result. An answer that was right once stays done."""
        record = self.records.setdefault(verdict.name, Record())
        record.attempts += 1
        record.done = record.done or verdict.passed
        self.save()

    def next_hint(self, exercise: Exercise) -> int:
        """The number of the next hint: the last one again when all were shown."""
        return min(self.record(exercise).hints + 1, HINTS)

    def note_hint(self, exercise: Exercise, number: int) -> None:
        """Keep that a hint was shown."""
        record = self.record(exercise)
        record.hints = max(record.hints, number)
        self.save()

    def note_solution(self, exercise: Exercise) -> None:
        """Keep that the solution was shown."""
        self.record(exercise).solution_seen = True
        self.save()

    def save(self) -> None:
        """Write course.json."""
        state: dict[str, Any] = {"version": 1, "level": self.level}
        if [each.name for each in self.exercises] != [each.name for each in whole()]:
            state["exercises"] = [each.name for each in self.exercises]
        if self.text_file is not None:
            state["text"] = self.text_file
        state["records"] = {name: asdict(record) for name, record in self.records.items() if record != Record()}
        self._write(self.path / STATE, json.dumps(state, indent=1) + "\n")

    def _write(self, path: Path, text: str) -> None:
        with clear_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)

    def _state(self) -> dict[str, Any]:
        path = self.path / STATE
        if self.path.exists() and not self.path.is_dir():
            raise GlassError(f"{self.path} is a file", "Name a folder: --folder FOLDER.")
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            if state["version"] != 1:
                raise ValueError(state["version"])
            for facts in state.get("records", {}).values():
                Record(**facts)
            return dict(state)
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError):
            again = f"glass learn check --all --folder {quoted(self.path)}"
            raise GlassError(
                f"{path} is damaged", f"Move it away: your answers stay, and {again} counts them."
            ) from None
