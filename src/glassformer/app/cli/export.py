"""Take a trained model away: write it as another program's files, load these back, compare, and only then keep them.

  glass export runs/book --to hf --out exported/book
  glass export runs/book --to hf --out exported/book --architecture llama
  glass export runs/book --to onnx --out exported/book-onnx
  glass export runs/book --to gguf --out exported/book.gguf

What the target cannot express exactly is refused by name, with the nearest setting that it can. An existing folder or
file is never written to.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from glassformer.base.report import emit

TARGETS = {
    "hf": "glassformer.interop.huggingface.export",
    "onnx": "glassformer.interop.onnx.export",
    "gguf": "glassformer.interop.gguf.export",
}
"""Name -> the module whose `export(ExportRequest) -> ExportReport` writes it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass export`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help="hf: a Hugging Face folder; onnx; gguf")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PATH", help="the new folder (hf, onnx) or file (gguf)"
    )
    parser.add_argument("--architecture", metavar="NAME", help="of the target (default: the one that fits best)")
    parser.add_argument("--dtype", metavar="NAME", help="gguf: f32, f16 or q8_0 (default: f32)")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")


def run(arguments: argparse.Namespace) -> int:
    """Export and print what was measured."""
    from glassformer.interop.export_report import ExportReport, ExportRequest

    request = ExportRequest(
        folder=arguments.run,
        out=arguments.out,
        which=arguments.checkpoint,
        architecture=arguments.architecture,
        dtype=arguments.dtype,
        note=lambda text: print(text, file=sys.stderr),
    )
    report: ExportReport = importlib.import_module(TARGETS[arguments.to]).export(request)
    emit(report, arguments.json)
    return 0
