"""Prove a run right, on its own weights: the proof sheet.

  glass verify runs/book
  glass verify runs/book --only cached-logits --only padding-blind
  glass verify runs/book --json > sheet.json

Every line is a promise, what was measured, and the limit. With a cache comes what comes without, in a batch what comes
alone; padding and the future change nothing; a run that was killed goes on as if it had not been; and so on. All of it
is measured with this run's weights, on a few rows of its own text. The sheet is kept as verify.json in the run,
with the hash of the weights. The exit code is 1 if a check failed, or could not be made.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.report import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass verify`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this check; may be repeated; nothing is kept"
    )
    parser.add_argument(
        "--device", default="auto", help="compared with the CPU: auto, cpu, cuda, cuda:N or mps (default: auto)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Verify the run and print each check; save the sheet unless `--only` is given. Return 1 if a check fails."""
    from glassformer.verification.sheet import chosen, save, verify_run

    width = max(len(check.name) for check in chosen(arguments.only))
    sheet = verify_run(
        arguments.run,
        arguments.checkpoint,
        arguments.device,
        arguments.only,
        tell=lambda result: print(result.line(width), flush=True) if result.made and not arguments.json else None,
    )
    emit(sheet, arguments.json)
    if not arguments.only:
        try:
            save(sheet)
        except GlassError as error:  # someone else's run may be verified, too: what was found counts
            print(f"the sheet is not kept: {error.problem}", file=sys.stderr)
    return 0 if sheet.ok else 1
