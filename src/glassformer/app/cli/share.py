"""Write a run to one HTML file that anyone can open: the model and its views, without a server or a network.

  glass share runs/book --out class.html
  glass share runs/book --out class.html --examples sentences.txt
  glass share runs/en-de --out small.html --bits 16

The model runs in the browser, on weights that are rounded to 8 bits by default (see --bits). The file is written under
a temporary name, read back and compared with the run before it is renamed; the page shows the result of the comparison.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.files import output_path
from glassformer.base.report import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass share`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, of any task")
    parser.add_argument(
        "--out", type=output_path, required=True, metavar="FILE", help="the HTML file; an existing file is replaced"
    )
    parser.add_argument(
        "--bits", type=int, choices=(8, 16, 32), default=8, help="bits per weight of a matrix (default: 8)"
    )
    parser.add_argument(
        "--examples",
        type=Path,
        metavar="FILE",
        help="file with example texts for the page, one per line, or a table (default: the text with which the page of "
        "glass serve begins)",
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file and print the report of the comparison."""
    from glassformer.app.cli.texts import texts_of
    from glassformer.app.share.share import ShareRequest, share_run
    from glassformer.runs.folder import open_run

    if arguments.out.suffix.lower() not in (".html", ".htm"):
        raise GlassError(f"--out {arguments.out} is not an HTML file", "Give a name that ends in .html.")
    examples: list[str] = []
    if arguments.examples is not None:
        texts = texts_of(arguments.examples, open_run(arguments.run).config(), {}, "example")
        examples = [text.strip() for text in texts if text.strip()]
        if not examples:
            problem = f"{arguments.examples} contains no text"
            raise GlassError(problem, "Write one example per line into it, or leave --examples out.")
    report = share_run(
        ShareRequest(
            folder=arguments.run,
            out=arguments.out,
            bits=arguments.bits,
            examples=examples,
            which=arguments.checkpoint,
            note=lambda text: print(text, file=sys.stderr),
        )
    )
    emit(report, arguments.json)
    return 0
