"""`glass heads RUN --history`: when each head of a run was born, in words, as a page or as a moving picture."""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit

if TYPE_CHECKING:
    from glassformer.inspection.replay import History

FORMATS = (".html", ".gif", ".png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass heads` that are about its history."""
    parser.add_argument("--history", action="store_true", help="when each head was born, from the run's snapshots")
    parser.add_argument("--role", metavar="NAME", help="with --history: of this role alone, such as induction")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="with --history: a page (.html) or moving picture (.gif, .png)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the snapshots, and print or draw."""
    from glassformer.base.locks import is_held
    from glassformer.inspection.replay import read_history
    from glassformer.inspection.replay.table import birth_lines, curve_lines
    from glassformer.runs.folder import open_run

    _refuse_unread(arguments)
    if arguments.out is not None:
        refuse_no_picture(arguments.out)
    run = open_run(arguments.run)
    if is_held(run.folder):
        print(f"{run.folder} is still training: these are its snapshots so far", file=sys.stderr)
    history = read_history(run)
    role = None if arguments.role is None else history.checked_role(arguments.role)
    head = None if arguments.head is None else history.checked_head(arguments.head)
    if arguments.out is not None:
        draw(arguments.out, f"{run.folder.name}: heads while it learnt", history, head, role)
    lines = birth_lines(history, role, head)
    if head is not None or role is not None:
        lines = chain(lines, [""], curve_lines(history, *history.chosen(head, role)))
    emit(SimpleReport(history.facts(role, head), lines), arguments.json)
    if arguments.out is not None and not arguments.json:
        print(f"{arguments.out} is written", file=sys.stderr)
    return 0


def refuse_unused(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` if something was given that only --history uses."""
    for name in ("role", "out"):
        if getattr(arguments, name) is not None:
            raise GlassError(f"--{name} was given without --history", "Add --history, or leave it out.")


def _refuse_unread(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` if something was given that snapshots, which are taken already, cannot follow."""
    remedies = {
        "text": "Snapshots are of the run's own texts: leave it out.",
        "plot": "Let --out name a page or a moving picture.",
        "importance": "Snapshots do not have it: leave one of them out.",
        "sort": "Births are in the order of their steps: leave it out.",
        "checkpoint": "Snapshots are of all of training: leave it out.",
        "device": "Snapshots are taken already: leave it out.",
    }
    for name, remedy in remedies.items():
        if getattr(arguments, name):
            raise GlassError(f"--{name} was given with --history", remedy)


def refuse_no_picture(path: Path) -> None:
    """Refuse another format, a missing folder, and a moving picture without matplotlib, before the work is done."""
    from glassformer.base.files import refuse_no_folder
    from glassformer.inspection.plots import refuse_no_matplotlib

    if path.suffix.lower() not in FORMATS or path.is_dir():
        raise GlassError(f"--out {path} is no name of a page or picture", f"Let it end in {', '.join(FORMATS)}.")
    refuse_no_folder(path)
    if path.suffix.lower() != ".html":
        refuse_no_matplotlib()


def draw(path: Path, title: str, history: History, head: str | None, role: str | None) -> None:
    """The page, or the picture."""
    from glassformer.base.files import write_bytes, write_text
    from glassformer.inspection.replay.animation import moving_picture
    from glassformer.inspection.replay.page import make_page

    if path.suffix.lower() == ".html":
        write_text(path, make_page(history, title, head, role))
    else:
        write_bytes(path, moving_picture(history, *history.chosen(head, role), path.suffix.lower()))
