"""Measure a run: loss with its 95 % interval, perplexity, bits per byte, and simpler predictors on the same text.

  glass evaluate runs/book
  glass evaluate runs/book another-book.txt

The loss is over the whole validation split (or the whole text given), in windows of the context length that do not
overlap. A copy meter shows the longest stretch of a fresh sample that stands word for word in the training text.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from glassformer.cli.settings import add_setting_flags, changes_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass evaluate`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("data", nargs="?", metavar="DATA", help="another text; measured whole")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), help="(default: as in training)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the sample for the copy meter (default: the run's)")
    add_setting_flags(parser, ("data",))


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print."""
    from glassformer.evaluation.report import evaluate_run

    report = evaluate_run(
        arguments.run,
        arguments.data,
        arguments.checkpoint,
        arguments.device,
        arguments.precision,
        note=lambda text: print(text, file=sys.stderr),
        seed=arguments.seed,
        changes=changes_from(arguments),
    )
    print(json.dumps(report.facts(), ensure_ascii=False) if arguments.json else report.table())
    return 0
