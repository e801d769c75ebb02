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
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.app.cli.texts import say_unknown_to, standard_input
from glassformer.base.errors import GlassError, nearest
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
        "--level", default="student", metavar="LEVEL",
        help="depth of the words: school, student, practitioner, engineer or researcher (default: student)",
    )  # fmt: skip
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
    from glassformer.inspection.explain.whole import as_numbers

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
    if arguments.json:
        page = {} if arguments.html is None else {"html": str(arguments.html)}
        print(json.dumps({**as_numbers(walk, level), **page}, ensure_ascii=False, allow_nan=False))
    elif arguments.html is not None:
        print(f"{arguments.html} shows the whole pass: open it in a browser")
    else:
        _print(walk, level, arguments)
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


def _print(walk: Walk, level: Level, arguments: argparse.Namespace) -> None:
    from glassformer.inspection.explain.text import text_lines

    heads = [section for section in walk.everything() if section.key == "head"]
    chosen = arguments.layer is not None or arguments.head is not None
    full = heads if chosen or len(heads) <= FEW_HEADS else heads[:1]
    layers = {head.layer for head in full} | {arguments.layer}  # one that has no heads left, too

    def whole(section: Section) -> bool:
        return section.layer in layers if section.key != "head" else any(section is head for head in full)

    width = max(80, min(120, shutil.get_terminal_size((100, 24)).columns))
    for line in text_lines(walk, level, width, whole):
        print(line)
    if len(full) < len(heads):
        of = f"of {len(heads)} heads "
        print(
            f"\n{counted(len(heads) - len(full), of + 'have one line each', of + 'has one line')}: "
            "--layer and --head show one in full, --html FILE all of them",
            file=sys.stderr,
        )
