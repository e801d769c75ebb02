"""Train a tiny model on generated stories, and print a story that the model generates. No download is needed.

glass demo
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from glassformer.app.cli.settings import add_short_flags, changes_from
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import quoted
from glassformer.launch.request import merge_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass demo`."""
    parser.add_argument(
        "--out", type=output_path, metavar="RUN", help="the run folder (default: runs/demo, or runs/demo-2 and so on)"
    )
    add_short_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train and evaluate the model, generate a story and print the results."""
    from glassformer.evaluation.evaluate import EvaluationRequest, evaluate_run
    from glassformer.evaluation.language_report import LanguageReport
    from glassformer.launch.start import start_run
    from glassformer.runs.opening import OpenedRun
    from glassformer.training.loop import train

    started = time.perf_counter()
    config = merge_settings("tiny", None, changes_from(arguments))
    out = arguments.out or next(path for path in _new_folders() if not path.exists())
    print(
        f"Training a {config.model.layers}-layer transformer on generated stories; the run folder is {out}",
        file=sys.stderr,
    )
    with start_run(config, out, arguments.began) as trainer:
        outcome = train(trainer)
    if outcome is None:
        return 130
    report = evaluate_run(
        EvaluationRequest(out, device=config.train.device, note=lambda text: print(text, file=sys.stderr))
    )
    assert isinstance(report, LanguageReport)
    model = OpenedRun.load(out, device=config.train.device).writer
    sample = model.generate([""], model.config.sample)[0]
    entropy = next((baseline.loss for baseline in report.baselines if baseline.name == "true entropy"), None)
    ratio = None if entropy is None else report.loss / entropy
    seconds = time.perf_counter() - started
    facts = {**report.facts(), "run": str(out), "text": sample.text, "entropy": entropy, "ratio": ratio}
    lines = [report.text()]
    if ratio is not None:
        lines.append(
            f"\nThe best possible loss on this text is {entropy:.4f}; the model's loss is {ratio:.3f} times that."
        )
    lines.append(f"\nGenerated text:\n{sample.text.strip()}\n")
    next_commands = f'glass generate {quoted(out)} "Once"   or   glass train YOUR-TEXT.txt'
    lines.append(f"{seconds:.0f} seconds in total. Next: {next_commands}")
    emit(SimpleReport({**facts, "seconds": seconds}, lines), arguments.json)
    return 0


def _new_folders() -> Iterator[Path]:
    """Yield runs/demo, runs/demo-2, runs/demo-3 and so on."""
    return (Path("runs") / (f"demo-{n}" if n > 1 else "demo") for n in count(1))
