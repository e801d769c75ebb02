"""Show one forward pass in numbers: from the text to the prediction, step by step.

  glass explain
  glass explain --level school
  glass explain runs/book "It was a dark"
  glass explain runs/book "It was a dark" --layer 1 --head 0 --level researcher
  glass explain runs/en-de "A man is sleeping." --target "Ein Mann schläft."
  glass explain runs/book "It was a dark" --html explained.html

With no run it walks through an example of three tokens that can be checked by hand. Every number is the model's own.
Large matrices are shown by their corners and statistics; --json gives more of them. The terminal shows one layer and
one head of a larger model in full and a line for each other one: --layer and --head choose; the page has them all.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.app.cli.texts import say_unknown_to, standard_input
from glassformer.base.errors import GlassError, nearest
from glassformer.base.report import emit
from glassformer.base.wording import counted, quoted

if TYPE_CHECKING:
    from glassformer.inspection.explain import Level, Section, Subject, Walk

FEW_HEADS = 4  # of the whole model: so many are all shown in full


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass explain`."""
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="a run folder; none: an example by hand")
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="what its model shall read; with [MASK] for a filler; - reads standard input",
    )
    parser.add_argument("--target", metavar="TEXT", help="of a run that translates or summarizes; else it writes one")
    parser.add_argument(
        "--level",
        default="student",
        metavar="LEVEL",
        help="depth of the words: school, student, practitioner, engineer or researcher (default: student)",
    )
    parser.add_argument("--layer", type=int, metavar="N", help="only this layer, counted from 0")
    parser.add_argument("--head", type=int, metavar="N", help="only this head, counted from 0")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="candidates of each prediction (default: 10)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page that works offline")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="(default: fp32)")


def run(arguments: argparse.Namespace) -> int:
    """Walk, and print the steps, their numbers, or where the page is."""
    from glassformer.inspection.explain import LEVELS, make_walk
    from glassformer.inspection.explain.page import check_writable, write_page

    if arguments.level not in LEVELS:
        raise GlassError(f"there is no level {arguments.level!r}", nearest(arguments.level, LEVELS))
    if arguments.top < 1:
        raise GlassError(f"--top {arguments.top} asks for nothing", "Give a number of at least 1.")
    level: Level = arguments.level
    if arguments.html is not None:
        check_writable(arguments.html)
    layers, heads = (None if number is None else (number,) for number in (arguments.layer, arguments.head))
    walk = make_walk(_subject(arguments), layers, heads, arguments.top)
    if arguments.html is not None:
        write_page(walk, level, arguments.html)
    chosen = arguments.layer is not None or arguments.head is not None
    report = WalkReport(walk, level, arguments.html, chosen, arguments.layer)
    emit(report, arguments.json)
    if not arguments.json and (note := report.shortened()) is not None:
        print(note, file=sys.stderr)
    return 0


def _subject(arguments: argparse.Namespace) -> Subject:
    """The run's model with the text, or the example."""
    from glassformer.inspection.explain import example, subject_of
    from glassformer.runs.folder import open_run
    from glassformer.runs.opening import OpenedRun

    if arguments.run is None:
        if arguments.target is not None:
            raise GlassError("--target was given without a run", "Give RUN and TEXT first.")
        return example()
    open_run(arguments.run)  # a text without a run is told so first
    if arguments.text is None:
        raise GlassError(
            f"{arguments.run} was given without a text", f'Use glass explain {quoted(arguments.run)} "TEXT"'
        )
    text = standard_input() if arguments.text == "-" else arguments.text
    model = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision).text_model
    subject = subject_of(model, text, arguments.target, str(arguments.run))
    say_unknown_to(model, text, arguments.target)
    return subject


@dataclass(frozen=True)
class WalkReport:
    """A walk for a terminal.

    Attributes:
        walk: the steps and their numbers.
        level: of the words.
        page: the HTML file that shows the walk; None: the terminal does.
        chosen: whether a layer or head was named.
        layer: number of the layer that was named.
    """

    walk: Walk
    level: Level
    page: Path | None
    chosen: bool
    layer: int | None

    def facts(self) -> dict[str, Any]:
        """Return all numbers of the walk, and where the page is."""
        from glassformer.inspection.explain.walk_json import as_numbers

        page = {} if self.page is None else {"html": str(self.page)}
        return {**as_numbers(self.walk, self.level), **page}

    def text(self) -> str:
        """Return the walk, or where the page is."""
        from glassformer.inspection.explain.text import text_lines

        if self.page is not None:
            return f"{self.page} shows the whole pass: open it in a browser"
        width = max(80, min(120, shutil.get_terminal_size((100, 24)).columns))
        return "\n".join(text_lines(self.walk, self.level, width, self._is_whole))

    def _heads(self) -> list[Section]:
        return [section for section in self.walk.everything() if section.key == "head"]

    def _whole_heads(self) -> list[Section]:
        """Heads that are shown with all their numbers: those of the named layer, or the first of many."""
        heads = self._heads()
        return heads if self.chosen or len(heads) <= FEW_HEADS else heads[:1]

    def _is_whole(self, section: Section) -> bool:
        heads = self._whole_heads()
        if section.key == "head":
            return any(section is head for head in heads)
        return section.layer in {self.layer, *(head.layer for head in heads)}  # a layer without heads, too

    def shortened(self) -> str | None:
        """Return a sentence on the heads that `text` gives one line each; None if there are none."""
        heads = self._heads()
        number = len(heads) - len(self._whole_heads())
        if self.page is not None or not number:
            return None
        of = f"of {len(heads)} heads "
        return (
            f"\n{counted(number, of + 'have one line each', of + 'has one line')}: "
            "--layer and --head show one in full, --html FILE all of them"
        )
