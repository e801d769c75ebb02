"""Measure a run by its task, with intervals, and beside simpler predictors.

  glass evaluate runs/book
  glass evaluate runs/book another-book.txt
  glass evaluate runs/en-de test.en test.de
  glass evaluate runs/mails test.csv --against runs/other
  glass evaluate runs/book --ablate dec.1.self.2,dec.0.feedforward --tokens 4096

Language models: the loss over the whole validation split (or the whole text given), in windows of the context length
that do not overlap; bits per byte, unless tokens are unknown; the longest stretch of a fresh sample that appears word
for word in the training text; and how much of DATA was in the training text. Translations: BLEU and chrF++ by
sacrebleu with their signatures; summaries: ROUGE; classifiers: accuracy, macro-F1, confusion and calibration.
--against tests two runs on the same examples. --ablate measures the loss alone, with parts of the model switched off
and with all on; glass explain and the page of glass serve name the parts.

If DATA is the text that the run was trained on (by its hash, wherever the file lies), its validation part is measured,
as without DATA.

--data.* set how any other DATA is read, --sample.* and --seed how both runs write; other settings cannot change.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from glassformer.app.cli.backend_option import add_backend
from glassformer.app.cli.settings import add_setting_flags, changes_from
from glassformer.base.errors import GlassError
from glassformer.base.report import emit

KINDS = ("zero", "mean", "first", "frozen")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass evaluate`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("data", nargs="?", metavar="DATA", help="another text, measured whole; or the run's own, moved")
    parser.add_argument("target", nargs="?", metavar="TARGET", help="of two parallel files the second")
    parser.add_argument("--against", type=Path, metavar="RUN", help="another run, compared by paired tests")
    parser.add_argument(
        "--examples", type=int, default=2000, metavar="N", help="texts to write, evenly drawn (default: 2000; 0: all)"
    )
    parser.add_argument(
        "--ablate", metavar="PARTS", help="switch off heads, layers, positions or the mask: dec.1.self.2,…"
    )
    parser.add_argument("--instead", choices=KINDS, default="zero", help="of parts that are off (default: zero)")
    parser.add_argument("--tokens", type=int, metavar="N", help="with --ablate, on so many targets (default: all)")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        help="of the matrix products of the loss; texts are written in fp32 (default: as in training)",
    )
    add_backend(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="of what is drawn, for both runs (default: each run's)")
    add_setting_flags(parser, ("data", "sample"))


def run(arguments: argparse.Namespace) -> int:
    """Evaluate the run and print the report."""
    from glassformer.evaluation.evaluate import EvaluationRequest, evaluate_run

    if arguments.examples < 0:
        raise GlassError(f"--examples {arguments.examples} is less than none", "Give a number, or 0 for all.")
    request = EvaluationRequest(
        folder=arguments.run,
        source=arguments.data,
        target=arguments.target,
        which=arguments.checkpoint,
        device=arguments.device,
        precision=arguments.precision,
        seed=arguments.seed,
        changes=changes_from(arguments),
        examples=arguments.examples or None,
        against=arguments.against,
        ablate=tuple(filter(None, (arguments.ablate or "").split(","))),
        instead=arguments.instead,
        tokens=arguments.tokens,
        backend=arguments.backend,
        note=lambda text: print(text, file=sys.stderr),
    )
    emit(evaluate_run(request), arguments.json)
    return 0
