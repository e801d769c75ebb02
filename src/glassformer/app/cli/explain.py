"""Print one forward pass in numbers: from the text to the prediction, step by step.

  glass explain
  glass explain --level school
  glass explain runs/book "It was a dark"
  glass explain runs/book "It was a dark" --head dec.1.self.0 --level researcher
  glass explain runs/en-de "A man is sleeping." --target "Ein Mann schläft."
  glass explain runs/book "It was a dark" --html explained.html

Without RUN, the command shows an example of three tokens that can be checked by hand. All numbers come from the forward
pass. Large matrices are printed as corners and statistics (--json prints larger corners). If a model has more than four
heads, the terminal shows one layer and one head in full (choose them with --layer and --head), and one line for each of
the other heads; the page of --html shows all heads in full.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.app.cli.texts import standard_input, warn_unknown
from glassformer.base.errors import GlassError, nearest
from glassformer.base.files import output_path
from glassformer.base.report import emit
from glassformer.base.wording import counted, quoted

if TYPE_CHECKING:
    from glassformer.inspection.explain import Level, Section, Subject, Walk

FEW_HEADS = 4
"""Maximum number of heads for the terminal to show all of them in full."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass explain`."""
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="a run folder (default: a small example)")
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="input text of the model, with [MASK] for task masked; - reads standard input",
    )
    parser.add_argument(
        "--target", metavar="TEXT", help="target of a translation or summary (default: the model generates it)"
    )
    parser.add_argument(
        "--level",
        default="student",
        metavar="LEVEL",
        help="level of the explanations: school, student, practitioner, engineer or researcher (default: student)",
    )
    parser.add_argument("--layer", type=int, metavar="N", help="show only this layer, counted from 0")
    parser.add_argument(
        "--head",
        metavar="NAME",
        help="show only this head, such as dec.1.self.0; or a number from 0: this head of each layer, or of --layer",
    )
    parser.add_argument(
        "--top", type=int, default=10, metavar="N", help="number of candidates of each prediction (default: 10)"
    )
    parser.add_argument("--html", type=output_path, metavar="FILE", help="write an HTML page that works offline")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="floating-point precision (default: fp32)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the forward pass, and print its steps, or write the page and print its path."""
    from glassformer.inspection.explain import LEVELS, make_walk
    from glassformer.inspection.explain.page import check_writable, write_page

    if arguments.level not in LEVELS:
        raise GlassError(f"there is no level {arguments.level!r}", nearest(arguments.level, LEVELS))
    if arguments.top < 1:
        raise GlassError(f"--top {arguments.top} is below 1", "Give a number of at least 1.")
    level: Level = arguments.level
    if arguments.html is not None:
        check_writable(arguments.html)
    subject = _subject(arguments)
    layer, head = _layer_and_head(arguments, subject)
    walk = make_walk(subject, None if layer is None else (layer,), None if head is None else (head,), arguments.top)
    if arguments.html is not None:
        write_page(walk, level, arguments.html)
    chosen = layer is not None or head is not None
    report = WalkReport(walk, level, arguments.html, chosen, layer)
    emit(report, arguments.json)
    if not arguments.json and (note := report.shortened()) is not None:
        print(note, file=sys.stderr)
    return 0


def _layer_and_head(arguments: argparse.Namespace, subject: Subject) -> tuple[int | None, int | None]:
    """Return the numbers of the layer and the head to show; None: all.

    Raises:
        GlassError: `--head` is neither a number nor the name of a head, or its layer is not that of `--layer`.
    """
    from glassformer.inspection.sites import find_head

    if arguments.head is None or arguments.head.removeprefix("-").isdecimal():
        return arguments.layer, None if arguments.head is None else int(arguments.head)
    head = find_head(subject.model, arguments.head)
    if arguments.layer not in (None, head.site.layer):
        raise GlassError(f"--head {arguments.head} is not in the layer of --layer {arguments.layer}", "Remove --layer.")
    return head.site.layer, head.head


def _subject(arguments: argparse.Namespace) -> Subject:
    """Return the run's model with the encoded text, or the example if there is no run."""
    from glassformer.inspection.explain import example, subject_of
    from glassformer.runs.folder import open_run
    from glassformer.runs.opening import OpenedRun

    if arguments.run is None:
        if arguments.target is not None:
            raise GlassError("--target was given without a run", "Give RUN and TEXT, or remove --target.")
        return example()
    open_run(arguments.run)  # first, so that a text given in place of a run is reported as such
    if arguments.text is None:
        raise GlassError(
            f"{arguments.run} was given without a text", f'Use glass explain {quoted(arguments.run)} "TEXT"'
        )
    text = standard_input() if arguments.text == "-" else arguments.text
    model = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision).text_model
    subject = subject_of(model, text, arguments.target, str(arguments.run))
    warn_unknown(model, [text], [arguments.target])
    return subject


@dataclass(frozen=True)
class WalkReport:
    """Report of a forward pass for the terminal.

    Attributes:
        walk: steps of the forward pass and their numbers.
        level: level of the explanations.
        page: HTML file with the forward pass; None: the terminal shows it.
        chosen: whether `--layer` or `--head` was given.
        layer: number of the chosen layer; None: all layers.
    """

    walk: Walk
    level: Level
    page: Path | None
    chosen: bool
    layer: int | None

    def facts(self) -> dict[str, Any]:
        """Return the forward pass as JSON values, with only the corners of large matrices, and the path of the page."""
        from glassformer.inspection.explain.walk_json import walk_facts

        page = {} if self.page is None else {"html": str(self.page)}
        return {**walk_facts(self.walk, self.level), **page}

    def text(self) -> str:
        """Return the steps of the forward pass, or the path of the page."""
        from glassformer.inspection.explain.text import text_lines

        if self.page is not None:
            return f"{self.page} shows the forward pass: open it in a browser"
        width = max(80, min(120, shutil.get_terminal_size((100, 24)).columns))
        return "\n".join(text_lines(self.walk, self.level, width, self._is_full))

    def _heads(self) -> list[Section]:
        return [section for section in self.walk.iter_sections() if section.key == "head"]

    def _full_heads(self) -> list[Section]:
        """Return the heads to show in full.

        These are all heads of `walk` if there are at most `FEW_HEADS`, or if `--layer` or `--head` was given; otherwise
        the first head.
        """
        heads = self._heads()
        return heads if self.chosen or len(heads) <= FEW_HEADS else heads[:1]

    def _is_full(self, section: Section) -> bool:
        heads = self._full_heads()
        if section.key == "head":
            return any(section is head for head in heads)
        return section.layer in {self.layer, *(head.layer for head in heads)}  # includes a layer without heads

    def shortened(self) -> str | None:
        """Return a note on the heads that `text` shows in one line each; None if there are none."""
        heads = self._heads()
        shortened_count = len(heads) - len(self._full_heads())
        if self.page is not None or not shortened_count:
            return None
        of = f"of {len(heads)} heads "
        return (
            f"\n{counted(shortened_count, of + 'have one line each', of + 'has one line')}: "
            "use --layer or --head to show one in full, or --html FILE to show all heads in full"
        )
