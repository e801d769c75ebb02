"""Draw attention patterns: of all heads of a run, of the heads of one layer, or of one head with its tokens.

  glass look runs/book "It was a dark day" --head dec.1.self.2
  glass look runs/book "It was a dark day" --out heads.png
  glass look runs/book "It was a dark day" --head dec.1.self.2 --scale sqrt --out head.png
  glass look runs/en-de "the old dog sleeps ." --site dec.0.cross --out alignment.svg
  glass look runs/en-de "the old dog sleeps ." --target "der alte Hund schläft ." --site dec.0.cross --json

Each row is a query token, each column a key token; the weights of a row sum to 1, and masked cells are grey. If there
are too many tokens for the picture, blocks of cells are pooled by their largest weight. With --head and without --out,
the terminal lists the tokens that each token attends to most. For a run that translates or summarizes, --target gives
the target; without it, the model generates one. --json prints the numbers of the picture.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.app.cli.texts import note_still_training, standard_input, warn_unknown
from glassformer.base.errors import GlassError
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit

if TYPE_CHECKING:
    from glassformer.inspection.explain import Subject
    from glassformer.inspection.sites import HeadSite, Site


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass look`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "text",
        metavar="TEXT",
        help="input text of the model, with [MASK] for task masked; - reads standard input",
    )
    parser.add_argument(
        "--target", metavar="TEXT", help="target of a translation or summary (default: the model generates it)"
    )
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument("--head", metavar="NAME", help="one head, such as dec.1.self.2 (default: all heads)")
    selection.add_argument("--site", metavar="NAME", help="the heads of one layer, such as dec.1.self or dec.0.cross")
    parser.add_argument(
        "--scale", choices=("linear", "sqrt", "log"), default="linear", help="scale of the colours (default: linear)"
    )
    parser.add_argument("--out", type=output_path, metavar="FILE", help="the picture: .png or .svg")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")


def run(arguments: argparse.Namespace) -> int:
    """Run the model and draw the attention patterns, list the largest weights of a head, or print JSON."""
    from glassformer.base.wording import counted
    from glassformer.inspection.plots import (
        draw_attention,
        facts,
        find_fonts,
        largest_weights,
        record_attention_maps,
        refuse_no_picture,
        save,
    )

    if arguments.out is not None:
        refuse_no_picture(arguments.out)
    elif not arguments.json and arguments.head is None:
        raise GlassError(
            "glass look was given without --out",
            "Name the picture, such as --out heads.png; or give --head NAME for a list, or --json for the numbers.",
        )
    subject = _subject(arguments)
    attention_maps = record_attention_maps(subject, _selected_site(arguments, subject))
    picture = {}
    if arguments.out is not None:
        fonts = find_fonts(attention_maps.texts())
        if message := fonts.message():
            print(message, file=sys.stderr)
        save(draw_attention(attention_maps, arguments.scale, fonts), arguments.out)
        picture = {"picture": str(arguments.out), "scale": arguments.scale}
        heads = counted(len(attention_maps.maps), "heads")
        lines = [f"{arguments.out} shows {heads} on {_token_counts(subject, arguments.target)}"]
    else:
        lines = [] if arguments.json else largest_weights(attention_maps)
    emit(SimpleReport({**facts(attention_maps), **picture}, lines), arguments.json)
    return 0


def _subject(arguments: argparse.Namespace) -> Subject:
    """Return the run's model with the encoded text.

    Raises:
        GlassError: the text is empty, does not fit the task, or is longer than the context.
    """
    from glassformer.inspection.explain import unshortened_subject_of
    from glassformer.runs.folder import open_run
    from glassformer.runs.opening import OpenedRun

    folder = open_run(arguments.run).folder
    text = standard_input() if arguments.text == "-" else arguments.text
    if not text:
        raise GlassError("the text is empty: there is no attention to draw", "Give a text that is not empty.")
    note_still_training(folder, arguments.checkpoint)
    model = OpenedRun.load(folder, arguments.checkpoint, arguments.device).text_model
    subject = unshortened_subject_of(model, text, arguments.target, str(arguments.run))
    warn_unknown(model, [text], [arguments.target])
    return subject


def _selected_site(arguments: argparse.Namespace, subject: Subject) -> HeadSite | Site | None:
    """Return the head of `--head` or the site of `--site`; None if neither is given."""
    from glassformer.inspection.plots import find_site
    from glassformer.inspection.sites import find_head

    if arguments.head is not None:
        return find_head(subject.model, arguments.head)
    return None if arguments.site is None else find_site(subject.model, arguments.site)


def _token_counts(subject: Subject, target: str | None) -> str:
    """Return the numbers of tokens of the text and of its target, as text."""
    from glassformer.base.wording import counted

    token_count = counted(len(subject.ids), "tokens")
    if subject.target_ids is None:
        return token_count
    return f"{token_count}, and {len(subject.target_ids):,} of the target" + (
        ", which the model generated" if target is None else ""
    )
