"""The option `--isa avx2`: measure as on a processor without AVX-512 and without instructions for bfloat16."""

from __future__ import annotations

import argparse
import os
import sys

RESTRICTIONS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",  # torch
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }
}
"""What the libraries read when they are loaded, by the value of `--isa`. onnxruntime knows no such variable."""


def add_isa(parser: argparse.ArgumentParser) -> None:
    """Add the option `--isa`."""
    parser.add_argument("--isa", choices=RESTRICTIONS, help="restrict the processor to these instructions")


def restrict(isa: str | None) -> None:
    """Start this program again with the processor restricted, unless it is already, or `isa` is None."""
    if isa is None or RESTRICTIONS[isa].items() <= os.environ.items():
        return
    os.environ.update(RESTRICTIONS[isa])
    os.execv(sys.executable, [sys.executable, *sys.argv])
