"""An exercise, read from its folder under `exercises/`.

* `task.py`: the task and the shipped solution, in jupytext's percent format; the lines between `# BEGIN SOLUTION` and
  `# END SOLUTION` are removed from the learner's file
* `check.py`: the reference functions, `cases(rng)`, `picture()` and, if the exercise is about text, `cases_on(text)`
* `answers.py`: MISTAKES, which a check must recognize and name, and ALSO_RIGHT, other correct solutions
* `page.md`: a title, an explanation at five levels, and three hints
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import LEVELS
from glassformer_course.cases import Case, Function, Mistake
from glassformer_course.drawing import Picture

HINTS = 3
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
