"""Predict the [MASK] tokens of a text with an encoder that was trained with glass train --task masked.

glass fill runs/fill "The [MASK] was very [MASK]."
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from glassformer.app.cli.texts import standard_input, warn_unknown
from glassformer.app.cli.uses import wrong_command
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass fill`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("text", metavar="TEXT", help="text with [MASK] for each missing token; - reads standard input")
    parser.add_argument(
        "--top", type=int, default=5, metavar="N", help="number of candidates for each [MASK] (default: 5)"
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="floating-point precision (default: fp32)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the text with its masks filled in, and the candidates for each mask."""
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import MaskFiller

    if arguments.top < 1:
        raise GlassError(f"--top {arguments.top} is below 1", "Give a number of at least 1.")
    model = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision).text_model
    if not isinstance(model, MaskFiller):
        raise wrong_command(arguments.run, model.config.train.task)
    text = standard_input() if arguments.text == "-" else arguments.text
    warn_unknown(model, [text])
    candidates_per_mask = model.fill(text, arguments.top)
    filled = model.filled(text, candidates_per_mask)
    facts = {
        "text": filled,
        "masks": [[asdict(candidate) for candidate in candidates] for candidates in candidates_per_mask],
    }
    lines = [filled]
    for number, candidates in enumerate(candidates_per_mask, start=1):
        candidate_texts = [f"{each.text.strip() or each.text!r} {each.probability:.1%}" for each in candidates]
        lines.append(f"[MASK] {number}: {', '.join(candidate_texts)}")
    emit(SimpleReport(facts, lines), arguments.json)
    return 0
