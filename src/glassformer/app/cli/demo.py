"""Train a tiny model on generated stories, on this machine, and show what it writes. No download, no setting.

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
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import quoted
from glassformer.launch.request import chosen_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass demo`."""
    parser.add_argument("--out", type=Path, metavar="RUN", help="the run folder (default: runs/demo, or the next free)")
    add_short_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train, measure, write a story."""
    from glassformer.evaluation.evaluate import EvaluationRequest, evaluate_run
    from glassformer.evaluation.language_report import LanguageReport
    from glassformer.launch.start import start_run
    from glassformer.runs.opening import OpenedRun
    from glassformer.training.loop import train

    started = time.perf_counter()
    config = chosen_settings("tiny", None, changes_from(arguments))
    out = arguments.out or next(path for path in _names() if not path.exists())
    print(f"Training a {config.model.layers}-layer transformer on generated stories, into {out}", file=sys.stderr)
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
    floor = next((rung.loss for rung in report.baselines if rung.name == "true entropy"), None)
    ratio = None if floor is None else report.loss / floor
    seconds = time.perf_counter() - started
    facts = {**report.facts(), "run": str(out), "text": sample.text, "entropy": floor, "ratio": ratio}
    lines = [report.text()]
    if ratio is not None:
        lines.append(f"\nThe best possible loss on this text is {floor:.4f}; the model is at {ratio:.3f} times that.")
    lines.append(f"\nIt writes:\n{sample.text.strip()}\n")
    following = f'glass generate {quoted(out)} "Once"   or   glass train YOUR-TEXT.txt'
    lines.append(f"{seconds:.0f} seconds in all. Next: {following}")
    emit(SimpleReport({**facts, "seconds": seconds}, lines), arguments.json)
    return 0


def _names() -> Iterator[Path]:
    return (Path("runs") / (f"demo-{n}" if n > 1 else "demo") for n in count(1))
