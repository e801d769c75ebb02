"""Import a model that transformers saved: a folder with config.json, tokenizer.json and model.safetensors or shards.

  glass import models/gpt2 --out runs/gpt2
  glass generate runs/gpt2 "Once upon a time"

The new run works with all commands that need no training text; glass evaluate needs DATA, and the run cannot be
resumed. If glassformer cannot express a setting of the model exactly, the error names the setting. Pickled weights
(pytorch_model.bin) are never opened, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from glassformer.base.files import output_path
from glassformer.base.report import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass import`."""
    parser.add_argument("path", type=Path, metavar="PATH", help="the folder of the model")
    parser.add_argument("--out", type=output_path, required=True, metavar="RUN", help="the new run folder")


def run(arguments: argparse.Namespace) -> int:
    """Import the model and print the report of the comparison."""
    from glassformer.interop.huggingface.importing import import_model

    report = import_model(arguments.path, arguments.out, lambda text: print(text, file=sys.stderr))
    emit(report, arguments.json)
    return 0
