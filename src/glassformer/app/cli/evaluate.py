"""Evaluate a run by the metrics of its task, with intervals and baselines.

  glass evaluate runs/book
  glass evaluate runs/book another-book.txt
  glass evaluate runs/en-de test.en test.de
  glass evaluate runs/mails test.csv --against runs/other
  glass evaluate runs/book --ablate dec.1.self.2,dec.0.feedforward --tokens 4096

Language models: the loss over the whole validation split (or over all of DATA), in windows of the context length that
do not overlap, or document by document; bits per byte, unless there are unknown tokens; the longest part of a new
sample that is copied from the training text; and the fraction of DATA that was in the training text. Masked models: the
loss and accuracy on masked tokens. Translations, summaries and answers of chat models: BLEU and chrF++ by sacrebleu
with their signatures (if it is installed), ROUGE and exact match. Classifiers: accuracy, macro-F1, confusion matrix and
calibration. --against compares two runs (not of task lm or masked) on the same examples by paired tests. --ablate
measures only the loss, with parts of the model ablated and with the whole model; glass explain and the page of glass
serve show the names of the parts.

If DATA has the same hash as the training text of the run and no --data.* is given, the run's validation split is used,
as without DATA.

--data.* change how DATA is read; --sample.* and --seed change how both runs generate text. Other settings cannot
be changed.
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
    """Add the arguments of `glass evaluate`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "data", nargs="?", metavar="DATA", help="another text to evaluate on, or the new path of the run's text"
    )
    parser.add_argument("target", nargs="?", metavar="TARGET", help="file with the targets, parallel to DATA")
    parser.add_argument("--against", type=Path, metavar="RUN", help="another run to compare with by paired tests")
    parser.add_argument(
        "--examples",
        type=int,
        default=2000,
        metavar="N",
        help="translate, summarize, chat: number of evenly spaced examples to generate for (default: 2000; 0: all)",
    )
    parser.add_argument(
        "--ablate",
        metavar="PARTS",
        help="parts to ablate: heads, attention or feed-forward layers, positions or the causal mask, "
        "such as dec.1.self.2,dec.0.feedforward",
    )
    parser.add_argument(
        "--instead", choices=KINDS, default="zero", help="replacement for the output of ablated parts (default: zero)"
    )
    parser.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help="with --ablate: approximate number of target tokens to measure the loss on (default: all)",
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        help="matrix multiplication precision for the loss; text is generated in fp32 (default: as in training)",
    )
    add_backend(parser)
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of sampling, for both runs (default: each run's own seed)"
    )
    add_setting_flags(parser, ("data", "sample"))


def run(arguments: argparse.Namespace) -> int:
    """Evaluate the run and print the report."""
    from glassformer.evaluation.evaluate import EvaluationRequest, evaluate_run

    if arguments.examples < 0:
        raise GlassError(f"--examples {arguments.examples} is below 0", "Give a positive number, or 0 for all.")
    seed = {} if arguments.seed is None else {"sample.seed": str(arguments.seed)}
    request = EvaluationRequest(
        folder=arguments.run,
        source=arguments.data,
        target=arguments.target,
        which=arguments.checkpoint,
        device=arguments.device,
        precision=arguments.precision,
        seed=arguments.seed,
        changes=changes_from(arguments, seed),
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
