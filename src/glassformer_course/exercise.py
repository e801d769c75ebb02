"""An exercise, read from its folder under `exercises/`.

* `task.py`: the task and the shipped solution, in jupytext's percent format; the lines between `# BEGIN SOLUTION` and
  `# END SOLUTION` are removed from the learner's file
* `check.py`: the reference functions, `cases(rng)`, `picture()` and, if the exercise is about text, `cases_on(text)`
* `answers.py`: MISTAKES, which a check must recognize and name, and ALSO_RIGHT, other correct solutions
* `page.md`: a title, an explanation at five levels, and three hints
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import LEVELS, counted
from glassformer_course.cases import Case, Function, Mistake
from glassformer_course.drawing import Picture

HINTS = 3
ANSWER = "answer"  # tag of a notebook's answer cell
WORDS_PER_MINUTE = 100  # of the task
MINUTES_PER_LINE = 2  # of the shipped solution
EASY, MEDIUM = 5, 10  # maximum numbers of lines of the shipped solution
HEADING = re.compile(r"^## (.+)$", flags=re.MULTILINE)
SOLUTION = re.compile(r"^(?P<indent> *)# BEGIN SOLUTION\n(?P<body>.*?)^ *# END SOLUTION\n", re.MULTILINE | re.DOTALL)


class Exercise:
    """An exercise of the course.

    Args:
        name: name of its folder.
        number: its position in the course, from 1.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number

    @property
    def file_name(self) -> str:
        """Name of the learner's file without its extension, such as `02_softmax`."""
        return f"{self.number:02}_{self.name}"

    @cached_property
    def title(self) -> str:
        """Title of the exercise."""
        return self._page.splitlines()[0].removeprefix("# ")

    @cached_property
    def source(self) -> str:
        """Source of `task.py`, including the solution and its markers."""
        return self._read("task.py")

    @cached_property
    def solution(self) -> str:
        """Source of the shipped solution."""
        return SOLUTION.sub(lambda match: match["body"], self.source)

    @cached_property
    def stub(self) -> str:
        """Source of the learner's file: each solution is replaced by a line that raises NotImplementedError."""
        return SOLUTION.sub(
            lambda match: f'{match["indent"]}raise NotImplementedError("yours to write")\n', self.source
        )

    @cached_property
    def task(self) -> str:
        """The task as Markdown, without its title."""
        text = re.split(r"^# %%.*\n", self.source, flags=re.MULTILINE)[1]
        lines = [line.removeprefix("#").removeprefix(" ") for line in text.strip().splitlines()]
        return "\n".join(line for line in lines if not line.startswith("# ")).strip()

    @property
    def words(self) -> int:
        """Number of words of the task, without formulas."""
        text = re.sub(r"\$\$.*?\$\$|`[^`]*`", " ", self.task, flags=re.DOTALL)
        return len(re.findall(r"[^\W\d_]{2,}", text))

    @property
    def lines(self) -> int:
        """Number of lines of code in the shipped solution that the learner's file lacks."""
        bodies = (match["body"] for match in SOLUTION.finditer(self.source))
        return sum(
            bool(line.strip()) and not line.strip().startswith("#") for body in bodies for line in body.split("\n")
        )

    @property
    def minutes(self) -> int:
        """Estimated time: 1 minute per 100 words of the task, and 2 per line of the solution, rounded up to fives."""
        return 5 * math.ceil((self.words / WORDS_PER_MINUTE + MINUTES_PER_LINE * self.lines) / 5)

    @property
    def difficulty(self) -> str:
        """Estimated difficulty: easy for up to 5 lines of the solution, medium for up to 10 lines, else hard."""
        return "easy" if self.lines <= EASY else "medium" if self.lines <= MEDIUM else "hard"

    @property
    def effort(self) -> str:
        """Estimated difficulty and time in one line, with the numbers from which they are estimated."""
        size = (
            f"{counted(len(self.functions), 'functions')} with {counted(self.lines, 'lines')} in the shipped solution"
        )
        return f"{self.difficulty.capitalize()}, about {self.minutes} minutes: {size}; {self.words} words of task"

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions that the learner writes; `task.py` and the reference both define them."""
        defined = re.findall(r"^def (\w+)\(", self.source, flags=re.MULTILINE)
        return tuple(name for name in defined if hasattr(self._check, name))

    @property
    def reference(self) -> dict[str, Function]:
        """Reference functions, by name."""
        return {name: getattr(self._check, name) for name in self.functions}

    @property
    def takes_text(self) -> bool:
        """Whether the exercise has cases on a text that a teacher supplies for an assignment (`--text`)."""
        return hasattr(self._check, "cases_on")

    def cases(self, seed: int, text: str | None = None) -> Iterator[Case]:
        """Yield the test cases; `seed` determines the random ones. Cases on `text` come last."""
        yield from self._check.cases(np.random.default_rng(seed))
        if text is not None and self.takes_text:
            yield from self._check.cases_on(text)

    def mistakes(self) -> list[tuple[Mistake, Mapping[str, Function]]]:
        """Return each variant of each known mistake: the wrong functions, completed by functions of the solution."""
        solved = self.solved()
        return [
            (mistake, {**solved, **wrong})
            for mistake in self._answers.MISTAKES
            for wrong in (mistake.wrong, *mistake.variants)
        ]

    def right(self) -> list[Mapping[str, Function]]:
        """Return the shipped correct answers: the solution, then its alternatives."""
        solved = self.solved()
        return [solved, *({**solved, **other} for other in self._answers.ALSO_RIGHT)]

    def solved(self) -> dict[str, Function]:
        """Return the functions of the shipped solution, by name."""
        namespace: dict[str, Any] = {"__name__": f"solution of {self.name}"}
        exec(compile(self.solution, f"solution of {self.name}", "exec"), namespace)
        return {name: namespace[name] for name in self.functions}

    def picture(self) -> Picture:
        """Return the picture of the exercise."""
        picture: Picture = self._check.picture()
        return picture

    @property
    def summary(self) -> str:
        """Introduction of the page, between the title and the first level."""
        return HEADING.split(self._page)[0].partition("\n")[2].strip()

    def page(self, level: str) -> str:
        """Return the explanation at one of the five levels.

        Raises:
            GlassError: unknown level.
        """
        if level not in LEVELS:
            raise GlassError(f"there is no level {level!r}", nearest(level, LEVELS))
        return self._sections[level]

    def hint(self, number: int) -> str:
        """Return hint 1 (the idea), 2 (the formula) or 3 (the code except for one line).

        Raises:
            GlassError: there is no hint of that number.
        """
        if number not in range(1, HINTS + 1):
            raise GlassError(f"there is no hint {number}", f"Choose a hint from 1 to {HINTS}.")
        return self._sections[f"hint {number}"]

    @cached_property
    def _page(self) -> str:
        return self._read("page.md")

    @cached_property
    def _sections(self) -> dict[str, str]:
        parts = HEADING.split(self._page)
        return {head.strip(): text.strip() for head, text in zip(parts[1::2], parts[2::2], strict=True)}

    @property
    def _check(self) -> Any:
        return importlib.import_module(f"glassformer_course.exercises.{self.name}.check")

    @property
    def _answers(self) -> Any:
        return importlib.import_module(f"glassformer_course.exercises.{self.name}.answers")

    def _read(self, file: str) -> str:
        return resources.files("glassformer_course").joinpath("exercises", self.name, file).read_text(encoding="utf-8")
