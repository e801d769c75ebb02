"""A case of the lab: its words, the choices that a learner has, and the module that plants its bug."""

from __future__ import annotations

import importlib
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import ascii_lowercase
from typing import TYPE_CHECKING, Protocol

from glassformer.base.errors import GlassError

if TYPE_CHECKING:
    from glassformer_course.lab.bench import Bench
    from glassformer_course.lab.evidence import Evidence

NAMES = (
    "off_by_one",
    "shift",
    "scale",
    "evaluation_mode",
    "pad_loss",
    "mask_late",
    "swapped",
    "axis",
    "cache",
    "left_pad",
    "top_p",
    "leak",
    "accumulation",
    "soft_mask",
    "decay",
    "untied",
    "false_gradient",
)
"""The cases in their order; a learner sees the number and the title, never this name before it is answered."""


class Experiment(Protocol):
    """Interface of the modules in `cases`."""

    fault: Callable[[], AbstractContextManager[None]]
    observe: Callable[[Bench], Evidence]
    shows: Callable[[Evidence], bool]


@dataclass(frozen=True)
class BugCase:
    """One bug.

    Attributes:
        number: from 1 on.
        name: of its module.
        title, scene: what a learner is told of it before anything is seen.
        answer: the right diagnosis, by its key in `diagnoses.toml`.
        tempting: the other choices -> why the evidence speaks against them.
        why: what shows the answer; it has the names of numbers of the evidence in braces.
        look: level -> what to look at.
        hints: three, to be given one at a time.
        wrong, right: the bug as code, and the right lines.
        source, link, told: where it was found in public, and what was told of it.
        caught_by: the test of this library's suite that fails with it.
    """

    number: int
    name: str
    title: str
    scene: str
    answer: str
    tempting: Mapping[str, str]
    why: str
    look: Mapping[str, str]
    hints: Sequence[str]
    wrong: str
    right: str
    source: str
    link: str
    told: str
    caught_by: str

    @property
    def folder(self) -> str:
        """The name of its folder: number and title."""
        return f"{self.number:02}-{self.title.lower().replace(',', '').replace(' ', '-')}"

    @property
    def choices(self) -> dict[str, str]:
        """Letter -> key of a diagnosis; the order is shuffled for each case, and always the same."""
        keys = sorted([self.answer, *self.tempting])
        random.Random(self.name).shuffle(keys)
        return dict(zip(ascii_lowercase, keys, strict=False))

    def experiment(self) -> Experiment:
        """The module that plants and observes the bug; it imports torch."""
        module: Experiment = importlib.import_module(f"glassformer_course.lab.cases.{self.name}")
        return module


@cache
def diagnoses() -> Mapping[str, str]:
    """Key -> sentence, of everything that a learner may choose."""
    return tomllib.loads(_text("diagnoses.toml"))


@cache
def cases() -> tuple[BugCase, ...]:
    """Return all cases, in order."""
    return tuple(
        BugCase(number, name, **tomllib.loads(_text("cases", f"{name}.toml")))
        for number, name in enumerate(NAMES, start=1)
    )


def find_case(word: str) -> BugCase:
    """The case of that number.

    Raises:
        GlassError: there is none.
    """
    if not word.isascii() or not word.isdecimal() or not 1 <= int(word) <= len(NAMES):
        raise GlassError(
            f"there is no case {word!r} in the lab", f"Its cases go from 1 to {len(NAMES)}: glass learn lab lists them."
        )
    return cases()[int(word) - 1]


def _text(*names: str) -> str:
    return resources.files("glassformer_course.lab").joinpath(*names).read_text(encoding="utf-8")
