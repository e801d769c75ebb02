"""Train a model on your own text.

DATA is a text file, a folder, .gz, CSV/TSV/JSONL, two parallel files, - for standard input, or the name of a generated
corpus (glass data list). Without DATA, the recipe's own text is used, or the generated stories.

  glass train book.txt --out runs/book
  glass train book.txt --task masked --out runs/fill
  glass train mails.csv --task classify --out runs/mails
  glass train text.en text.de --task translate --out runs/en-de
  glass train articles.jsonl --task summarize --out runs/short
  glass train book.txt --out runs/book2 --recipe shakespeare-nano --minutes 5
  glass train --resume --out runs/book --steps 4000

A resumed run keeps its settings; --steps, --minutes and the other limits can change, and count from the run's start.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.cli.choosing import add_run_arguments, chosen_run
from glassformer.cli.settings import changes_from
from glassformer.cli.uses import use_of
from glassformer.config import Config, Task
from glassformer.errors import GlassError
from glassformer.wording import quoted

if TYPE_CHECKING:
    from glassformer.training.trainer import Outcome, Trainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass train`."""
    add_run_arguments(parser)
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in --out, or with the newest in runs/"
    )


def run(arguments: argparse.Namespace) -> int:
    """Train, and report the kept checkpoint."""
    if arguments.resume:
        return _resume(arguments, changes_from(arguments))
    config, out = chosen_run(arguments)
    return _print_outcome(out, config.train.task, train_run(config, out), arguments.json)


def train_run(config: Config, out: Path) -> Outcome | None:
    """Start a new run and train it to its end; None if someone stopped it."""
    from glassformer.training.reporting import choose_reporter
    from glassformer.training.setup import new_training

    reporter = choose_reporter()
    try:
        return _until_the_end(new_training(config, out, reporter))
    finally:
        reporter.close()


def _resume(arguments: argparse.Namespace, changes: dict[str, str]) -> int:
    from glassformer.training.reporting import choose_reporter
    from glassformer.training.setup import newest_run, resume_training

    for name in ("data", "target", "recipe", "config"):
        if getattr(arguments, name) is not None:
            raise GlassError(
                f"--resume was given with {name} = {getattr(arguments, name)}",
                "A resumed run keeps its own: leave it out.",
            )
    out = arguments.out or newest_run(Path("runs"))
    reporter = choose_reporter()
    try:
        trainer = resume_training(out, changes, reporter)
        outcome = _until_the_end(trainer)
    finally:
        reporter.close()
    return _print_outcome(out, trainer.config.train.task, outcome, arguments.json)


def _until_the_end(trainer: Trainer) -> Outcome | None:
    """Train until the end, or until Ctrl-C or a polite kill, after which all is saved."""
    if trainer.config.train.snapshots:
        from glassformer.evaluation.replay import Recorder

        trainer.observer = Recorder(trainer)

    def stop(number: int, frame: object) -> None:
        if trainer.stop_requested:
            raise KeyboardInterrupt  # the second time: at once, with what was saved
        trainer.stop_requested = True
        print("stopping after this step; once more stops at once", file=sys.stderr)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        outcome = trainer.train()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if outcome is None:
        print(f"stopped after step {trainer.state.step}, all saved", file=sys.stderr)
        print(f"Go on with: glass train --resume --out {quoted(trainer.run.folder)}", file=sys.stderr)
    return outcome


def _print_outcome(out: Path, task: Task, outcome: Outcome | None, as_json: bool) -> int:
    if outcome is None:
        return 130
    validation = outcome.validation
    if as_json:
        facts = {
            "run": str(out), "step": outcome.step, "loss": validation.loss, "loss_ci95": validation.ci95,
            "perplexity": validation.perplexity, "bits_per_byte": outcome.bits_per_byte,
            "entropy": outcome.floor, "train_seconds": outcome.train_seconds, "steps_done": outcome.last_step,
            "stopped_because": outcome.reason, "verdict": outcome.verdict,
        }  # fmt: skip
        print(json.dumps(facts))
        return 0
    print(f"{outcome.verdict}; training ended because {outcome.reason}")
    bits = "" if outcome.bits_per_byte is None else f", {outcome.bits_per_byte:.3f} bits per byte"
    print(
        f"step {outcome.step}: validation loss {validation.loss:.4f} {validation.margin} nats per {outcome.unit} over "
        f"all {validation.tokens:,}, perplexity {validation.perplexity:.2f}{bits}"
    )
    if outcome.floor is not None:
        ratio = validation.loss / outcome.floor
        print(f"this is {ratio:.3f} times the true entropy of the text, {outcome.floor:.4f}: no model can do better")
    print(f"{out} is ready: {use_of(out, task)}")
    return 0
