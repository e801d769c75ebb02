"""Show when each head acquired its roles, as text, a page or an animation (`glass heads RUN --history`)."""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit

if TYPE_CHECKING:
    from glassformer.inspection.replay import History

FORMATS = (".html", ".gif", ".png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass heads --history`."""
    parser.add_argument(
        "--history", action="store_true", help="print when each head acquired its roles, from the run's snapshots"
    )
    parser.add_argument("--role", metavar="NAME", help="with --history: show only this role, such as induction")
    parser.add_argument(
        "--out",
        type=output_path,
        metavar="FILE",
        help="with --history: write a page (.html) or an animation (.gif, .png)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print when each head acquired its roles, and write the page or animation of `--out`.

    With `--head` or `--role`, also print the score of one head in one role at each snapshot.
    """
    from glassformer.base.locks import is_held
    from glassformer.inspection.replay import read_history
    from glassformer.inspection.replay.table import birth_lines, curve_lines
    from glassformer.runs.folder import open_run

    _refuse_unsupported(arguments)
    if arguments.out is not None:
        refuse_no_picture(arguments.out)
    run = open_run(arguments.run)
    if is_held(run.folder):
        print(f"{run.folder} is still training: these are its snapshots so far", file=sys.stderr)
    history = read_history(run)
    role = None if arguments.role is None else history.checked_role(arguments.role)
    head = None if arguments.head is None else history.checked_head(arguments.head)
    if arguments.out is not None:
        draw(arguments.out, f"{run.folder.name}: heads during training", history, head, role)
    lines = birth_lines(history, role, head)
    if head is not None or role is not None:
        lines = chain(lines, [""], curve_lines(history, *history.chosen(head, role)))
    emit(SimpleReport(history.facts(role, head), lines), arguments.json)
    if arguments.out is not None and not arguments.json:
        print(f"{arguments.out} is written", file=sys.stderr)
    return 0


def refuse_unused(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` if an option was given that only `--history` uses."""
    for name in ("role", "out"):
        if getattr(arguments, name) is not None:
            raise GlassError(f"--{name} was given without --history", f"Add --history, or remove --{name}.")


def _refuse_unsupported(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` if an option was given that cannot be used with saved snapshots."""
    remedies = {
        "text": "Remove --text: snapshots were taken on the run's own texts.",
        "plot": "Remove --plot, or use --out to write a page or an animation.",
        "importance": "Remove one of the two: snapshots do not contain the importance.",
        "sort": "Remove --sort: the table is in the order of training steps.",
        "checkpoint": "Remove --checkpoint: snapshots cover the whole training.",
        "device": "Remove --device: snapshots were computed during training.",
    }
    for name, remedy in remedies.items():
        if getattr(arguments, name):
            raise GlassError(f"--{name} was given with --history", remedy)


def refuse_no_picture(path: Path) -> None:
    """Check the path of `--out` before any computation.

    Raises:
        GlassError: the suffix is unknown, or `refuse_no_file` refuses `path`.
    """
    from glassformer.base.files import refuse_no_file

    if path.suffix.lower() not in FORMATS:
        raise GlassError(
            f"--out {path} is not the name of a page or animation", "Use a name that ends in .html, .gif or .png."
        )
    refuse_no_file(path)


def draw(path: Path, title: str, history: History, head: str | None, role: str | None) -> None:
    """Write the page or the animation to `path`, depending on its suffix."""
    from glassformer.base.files import write_bytes, write_text
    from glassformer.inspection.replay.animation import animation_bytes
    from glassformer.inspection.replay.page import make_page

    if path.suffix.lower() == ".html":
        write_text(path, make_page(history, title, head, role))
    else:
        write_bytes(path, animation_bytes(history, *history.chosen(head, role), path.suffix.lower()))
