"""Train a model on your own text.

DATA is a text file, a folder, .gz, CSV/TSV/JSONL, - for standard input, or the name of a generated corpus
(glass data list). Without DATA, the recipe's own text is used, or the generated stories.

  glass train book.txt --out runs/book
  glass train book.txt --out runs/book2 --recipe shakespeare-nano --minutes 5
  glass train --resume --out runs/book --steps 4000

A resumed run keeps its settings; --steps, --minutes and the other limits can change, and count from the run's start.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli.settings import add_setting_flags, add_short_flags, changes_from, settings_of
from glassformer.config import Config
from glassformer.data.corpora import CORPORA
from glassformer.errors import GlassError
from glassformer.recipes import load_recipe, recipe_names
from glassformer.settings import read_toml

if TYPE_CHECKING:
    from glassformer.training.trainer import Outcome, Trainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass train`."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="what to learn from")
    parser.add_argument("--out", type=Path, metavar="RUN", help="the run folder (default: runs/NAME-OF-DATA)")
    parser.add_argument("--recipe", metavar="NAME", help=f"named settings: {', '.join(recipe_names())}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file, over the recipe's")
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in --out, or with the newest in runs/"
    )
    add_short_flags(parser)
    add_setting_flags(parser, Config.model_fields)


def run(arguments: argparse.Namespace) -> int:
    """Train, and report the kept checkpoint."""
    changes = changes_from(arguments)
    if arguments.resume:
        return _resume(arguments, changes)
    config = chosen_settings(arguments.data, arguments.recipe, arguments.config, changes)
    out = arguments.out or Path("runs") / _run_name(config.data.source)
    return _print_outcome(out, train_run(config, out), arguments.json)


def chosen_settings(data: str | None, recipe: str | None, file: Path | None, changes: dict[str, str]) -> Config:
    """Defaults, then what suits the corpus, then recipe, file and flags, each over the ones before."""
    layers: list[dict[str, Any]] = [load_recipe(recipe).settings] if recipe else []
    layers += [read_toml(file)] if file else []
    if data is not None:
        changes = {**changes, "data.source": json.dumps(data, ensure_ascii=False)}
    where = "" if file is None else str(file)
    source = settings_of(layers, changes, where).data.source
    if source in CORPORA:
        layers.insert(0, _nested(CORPORA[source].recommended("lm")))
    return settings_of(layers, changes, where)


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

    for name in ("data", "recipe", "config"):
        if getattr(arguments, name) is not None:
            raise GlassError(
                f"--resume was given with {name} = {getattr(arguments, name)}",
                "A resumed run keeps its own: leave it out.",
            )
    out = arguments.out or newest_run(Path("runs"))
    reporter = choose_reporter()
    try:
        outcome = _until_the_end(resume_training(out, changes, reporter))
    finally:
        reporter.close()
    return _print_outcome(out, outcome, arguments.json)


def _until_the_end(trainer: Trainer) -> Outcome | None:
    """Train until the end, or until Ctrl-C or a polite kill, after which all is saved."""

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
        print(f"Go on with: glass train --resume --out {trainer.run.folder}", file=sys.stderr)
    return outcome


def _print_outcome(out: Path, outcome: Outcome | None, as_json: bool) -> int:
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
    print(
        f"step {outcome.step}: validation loss {validation.loss:.4f} {validation.margin} nats per token over all "
        f"{validation.tokens:,} tokens, perplexity {validation.perplexity:.2f}, "
        f"{outcome.bits_per_byte:.3f} bits per byte"
    )
    if outcome.floor is not None:
        ratio = validation.loss / outcome.floor
        print(f"this is {ratio:.3f} times the true entropy of the text, {outcome.floor:.4f}: no model can do better")
    print(f"{out} is ready: glass generate {out} PROMPT")
    return 0


def _run_name(source: str) -> str:
    return "text" if source == "-" else Path(source).name.split(".")[0] or "text"


def _nested(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`{"data.windows": "documents"}` -> `{"data": {"windows": "documents"}}`."""
    nested: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        section, _, field = key.partition(".")
        nested.setdefault(section, {})[field] = value
    return nested
