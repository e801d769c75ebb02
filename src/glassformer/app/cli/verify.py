"""Check a run on its own weights, and write the report.

  glass verify runs/book
  glass verify runs/book --only cached-logits --only padding-blind
  glass verify runs/book --json > report.json

Each line has a claim, the measured value and its limit. Examples: logits with a cache equal logits without it; batched
logits equal single-row logits; padding and future tokens change nothing; a run that was killed resumes to the same
weights. Everything is measured with the run's weights, on a few rows of its own text. Unless --only is given, the
report is saved in the run folder as verify.json, with the hash of the weights. The exit code is 1 if a check failed or
could not run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from glassformer.app.cli.texts import note_still_training
from glassformer.base.errors import GlassError
from glassformer.base.report import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass verify`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="run only this check, without saving the report; may be repeated",
    )
    parser.add_argument(
        "--device",
        default="auto",
        help="device to compare with the CPU: auto, cpu, cuda, cuda:N or mps (default: auto)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Verify the run and print the report; save it unless `--only` is given.

    Return 1 if a check fails or cannot run, else 0.
    """
    from glassformer.verification.report import save, select_checks, verify_run

    note_still_training(arguments.run, arguments.checkpoint)
    width = max(len(check.name) for check in select_checks(arguments.only))
    report = verify_run(
        arguments.run,
        arguments.checkpoint,
        arguments.device,
        arguments.only,
        tell=lambda result: print(result.line(width), flush=True) if result.could_run and not arguments.json else None,
    )
    emit(report, arguments.json)
    if not arguments.only:
        try:
            save(report)
        except GlassError as error:  # the run folder may be read-only; the checks are still valid
            print(f"the report is not saved: {error.problem}", file=sys.stderr)
    return 0 if report.ok else 1
