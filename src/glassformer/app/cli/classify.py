"""Predict the label of a text with a classifier that was trained with glass train --task classify.

glass classify runs/mails "Your parcel has arrived"
glass classify runs/mails --input mails.txt --json
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from glassformer.app.cli.texts import (
    add_table_flags,
    standard_input,
    table_flags,
    texts_of,
    warn_truncated,
    warn_unknown,
)
from glassformer.app.cli.uses import wrong_command
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

SHOWN = 5
"""Maximum number of labels printed for a single text, with their probabilities."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass classify`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "text", nargs="*", metavar="TEXT", help="texts to classify; - reads one text from standard input"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="file with one text per line, or a table")
    add_table_flags(parser, "--input")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="floating-point precision (default: fp32)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Classify the texts; print one line for each text or, for a single TEXT, up to `SHOWN` of the likeliest labels."""
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import TextClassifier

    if arguments.text and arguments.input is not None:
        raise GlassError(
            f"glass classify was given both a text and --input {arguments.input}",
            "Give TEXT or --input FILE, not both.",
        )
    if not arguments.text and arguments.input is None:
        raise GlassError("glass classify was given no text", "Give TEXT, or --input FILE with one text per line.")
    reading = table_flags(arguments, "--input", arguments.input is not None)
    model = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision).text_model
    if not isinstance(model, TextClassifier):
        raise wrong_command(arguments.run, model.config.train.task)
    texts = texts_of(arguments.input, model.config, reading, "text") if arguments.input else arguments.text
    texts = [standard_input() if text == "-" and not arguments.input else text for text in texts]
    _notice_empty(texts, arguments.input)
    warn_unknown(model, texts)
    warn_truncated([model.unread_tokens(text) for text in texts], "texts", model.config.model.context)
    predictions = model.classify(texts)
    facts = {"labels": list(model.labels), "texts": [asdict(each) for each in predictions]}
    if len(predictions) > 1 or arguments.input:  # a file with one line has the same output format as any file
        lines = [
            f"{' '.join(each.label.splitlines())}\t{each.probability:.4f}\t{' '.join(each.text.split())[:100]}"
            for each in predictions
        ]
    else:
        lines = [
            f"{probability:>8.2%}  {label}" for label, probability in list(predictions[0].probabilities.items())[:SHOWN]
        ]
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def _notice_empty(texts: list[str], file: Path | None) -> None:
    """Raise a `GlassError` if an argument is a blank text; print a warning if lines of a file are blank."""
    empty = [number for number, text in enumerate(texts, start=1) if not text.strip()]
    if empty and file is None:
        which = "the text" if len(texts) == 1 else f"text {empty[0]} of {len(texts):,}"
        raise GlassError(f"{which} is empty", "Give a text that is not empty.")
    if empty:
        lines = counted(len(empty), f"lines of {file} are", f"line of {file} is")
        print(f"{lines} empty: the label of an empty line is meaningless", file=sys.stderr)
