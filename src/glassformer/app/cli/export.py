"""Export a run to a format of another program, load the files, and compare them with the run.

  glass export runs/book --to hf --out exported/book
  glass export runs/book --to hf --out exported/book --architecture llama
  glass export runs/book --to onnx --out exported/book-onnx
  glass export runs/book --to gguf --out exported/book.gguf

If the difference from the run is too large, the files are deleted. If the target format cannot express a setting
exactly, the error names the setting and the nearest allowed value. An existing folder or file is never overwritten.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from glassformer.base.files import output_path
from glassformer.base.report import emit

TARGETS = {
    "hf": "glassformer.interop.huggingface.export",
    "onnx": "glassformer.interop.onnx.export",
    "gguf": "glassformer.interop.gguf.export",
}
"""Name of each format -> module with `export(ExportRequest) -> ExportReport`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass export`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--to",
        choices=tuple(TARGETS),
        required=True,
        help="format: hf (a Hugging Face folder), onnx or gguf",
    )
    parser.add_argument(
        "--out", type=output_path, required=True, metavar="PATH", help="the new folder (hf, onnx) or file (gguf)"
    )
    parser.add_argument("--architecture", metavar="NAME", help="architecture to export to (default: the best match)")
    parser.add_argument(
        "--dtype", metavar="NAME", help="gguf: data type of the weights (f32, f16 or q8_0; default: f32)"
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Export the run and print the report of the comparison."""
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
