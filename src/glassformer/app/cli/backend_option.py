"""The option `--backend` of the commands that generate text."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from glassformer.base.backends import BACKENDS


def add_backend(parser: argparse.ArgumentParser, choices: Sequence[str] = BACKENDS, default: str = "auto") -> None:
    """Add the option `--backend` to the parser of a command."""
    parser.add_argument(
        "--backend", choices=choices, default=default, help=f"backend that generates text (default: {default})"
    )
