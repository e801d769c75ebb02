"""Cases of the lab: texts, choices of diagnoses, and the module that plants the bug."""

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
    from glassformer_course.lab.bench import LabTrainer
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
"""Module names of the cases, in order; learners see only the number and the title, because the name reveals the bug."""


class Experiment(Protocol):
    """Interface of the modules in `cases`: plant the bug, collect evidence, and check that it shows the bug."""

    fault: Callable[[], AbstractContextManager[None]]
    observe: Callable[[LabTrainer], Evidence]
    evidence_shows_bug: Callable[[Evidence], bool]


@dataclass(frozen=True)
class BugCase:
    """One case: a bug with its texts.

    Attributes:
        number: number of the case, from 1.
        name: name of its module.
        title, scene: introduction, shown before the evidence.
        answer: the right diagnosis: a key in `diagnoses.toml`.
        tempting: wrong diagnosis -> reason why the evidence rules it out.
        why: explanation of how the evidence shows the answer; names in braces are replaced by numbers of the evidence.
        look: level -> advice on what to compare in the evidence.
        hints: three hints, given one at a time.
        wrong, right: the faulty code, and the corrected code.
        source, link, told: public report of the bug, its URL (empty if there is none), and a summary of it.
        caught_by: test of this library that fails with the bug.
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
        """Name of the case's folder, made of its number and title."""
        return f"{self.number:02}-{self.title.lower().replace(',', '').replace(' ', '-')}"

    @property
    def choices(self) -> dict[str, str]:
        """Letter -> key of a diagnosis, in a shuffled order that is fixed for each case."""
        keys = sorted([self.answer, *self.tempting])
        random.Random(self.name).shuffle(keys)
        return dict(zip(ascii_lowercase, keys, strict=False))

    def experiment(self) -> Experiment:
        """Import and return the module that plants and observes the bug; this imports torch."""
        module: Experiment = importlib.import_module(f"glassformer_course.lab.cases.{self.name}")
        return module


@cache
def diagnoses() -> Mapping[str, str]:
    """Return all diagnoses, as a dictionary from key to sentence."""
    return tomllib.loads(_text("diagnoses.toml"))


@cache
def cases() -> tuple[BugCase, ...]:
    """Return all cases, in order."""
    return tuple(
        BugCase(number, name, **tomllib.loads(_text("cases", f"{name}.toml")))
        for number, name in enumerate(NAMES, start=1)
    )


def find_case(number: str) -> BugCase:
    """Return a case by its number.

    Raises:
        GlassError: unknown case.
    """
    if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= len(NAMES):
        raise GlassError(
            f"there is no case {number!r} in the lab",
            f"Choose a case from 1 to {len(NAMES)}; glass learn lab lists them.",
        )
    return cases()[int(number) - 1]


def _text(*names: str) -> str:
    return resources.files("glassformer_course.lab").joinpath(*names).read_text(encoding="utf-8")
