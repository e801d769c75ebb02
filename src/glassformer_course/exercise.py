"""One exercise, read from its folder under `exercises/`.

* `task.py`: the statement and the shipped solution, in the percent format of jupytext; what stands between
  `# BEGIN SOLUTION` and `# END SOLUTION` is taken out of the learner's file
* `check.py`: the reference functions, `cases(rng)` and `picture()`; `cases_on(text)` where it is about text
* `answers.py`: MISTAKES that must be refused by name, and ALSO_RIGHT: the solution written in other ways
* `page.md`: a title, an explanation at five depths, three hints
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
        name: its folder's name.
        number: its place in the course, from 1.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number

    @property
    def file_name(self) -> str:
        """Name of the learner's file without its extension: 02_softmax."""
        return f"{self.number:02}_{self.name}"

    @cached_property
    def title(self) -> str:
        """The heading of its page."""
        return self._page.splitlines()[0].removeprefix("# ")

    @cached_property
    def source(self) -> str:
        """task.py as it stands, with the solution's marks."""
        return self._read("task.py")

    @cached_property
    def solution(self) -> str:
        """The shipped solution as a file."""
        return SOLUTION.sub(lambda found: found["body"], self.source)

    @cached_property
    def stub(self) -> str:
        """The learner's file: every solution is replaced by a line that raises."""
        return SOLUTION.sub(
            lambda found: f'{found["indent"]}raise NotImplementedError("yours to write")\n', self.source
        )

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The functions that the learner writes: those of task.py that the reference has too."""
        defined = re.findall(r"^def (\w+)\(", self.source, flags=re.MULTILINE)
        return tuple(name for name in defined if hasattr(self._check, name))

    @property
    def reference(self) -> dict[str, Function]:
        """The right functions, by name."""
        return {name: getattr(self._check, name) for name in self.functions}

    @property
    def takes_text(self) -> bool:
        """True if some cases can be about a text of the learner's own."""
        return hasattr(self._check, "cases_on")

    def cases(self, seed: int, text: str | None = None) -> Iterator[Case]:
        """The questions; the random ones follow from the seed. With a text, those about it come last."""
        yield from self._check.cases(np.random.default_rng(seed))
        if text is not None and self.takes_text:
            yield from self._check.cases_on(text)

    def mistakes(self) -> list[tuple[Mistake, Mapping[str, Function]]]:
        """Each known mistake, with all functions of the exercise as that mistake has them."""
        solved = self.solved()
        return [(mistake, {**solved, **mistake.wrong}) for mistake in self._answers.MISTAKES]

    def right(self) -> list[Mapping[str, Function]]:
        """The right answers that ship: the solution, and it written in other ways."""
        solved = self.solved()
        return [solved, *({**solved, **other} for other in self._answers.ALSO_RIGHT)]

    def solved(self) -> dict[str, Function]:
        """The functions of the shipped solution."""
        names: dict[str, Any] = {"__name__": f"solution of {self.name}"}
        exec(compile(self.solution, f"solution of {self.name}", "exec"), names)
        return {name: names[name] for name in self.functions}

    def picture(self) -> Picture:
        """The picture of its page."""
        picture: Picture = self._check.picture()
        return picture

    @property
    def summary(self) -> str:
        """The paragraph under the title."""
        return HEADING.split(self._page)[0].partition("\n")[2].strip()

    def page(self, level: str) -> str:
        """The explanation at one of the five depths.

        Raises:
            GlassError: there is no such depth.
        """
        if level not in LEVELS:
            raise GlassError(f"there is no depth {level!r}", nearest(level, LEVELS))
        return self._sections[level]

    def hint(self, number: int) -> str:
        """Hint 1 (the idea), 2 (the formula) or 3 (all but a line).

        Raises:
            GlassError: there is no such hint.
        """
        if number not in range(1, HINTS + 1):
            raise GlassError(f"there is no hint {number}", f"An exercise has hints 1 to {HINTS}.")
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
