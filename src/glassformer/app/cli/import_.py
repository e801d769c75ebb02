"""Bring in a model that transformers saved: a folder with config.json, model.safetensors and tokenizer.json.

  glass import models/gpt2 --out runs/gpt2
  glass generate runs/gpt2 "Once upon a time"

The new run is used like any other. What glassformer cannot express exactly is refused by name; pickled weights
(pytorch_model.bin) are never opened. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from glassformer.base.report import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass import`."""
    parser.add_argument("path", type=Path, metavar="PATH", help="the folder of the model")
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="the new run folder")


def run(arguments: argparse.Namespace) -> int:
    """Import and print what was measured."""
    from glassformer.interop.huggingface.importing import import_model

    report = import_model(arguments.path, arguments.out, lambda text: print(text, file=sys.stderr))
    emit(report, arguments.json)
    return 0
