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

A run over your own data that names neither --recipe nor --config has the recipe auto of its task (auto, auto-masked,
auto-classify, auto-translate, auto-summarize), which stands over the defaults below: sizes for this machine and
--minutes (10 if nothing is said), or the usual sizes and --steps.

--minutes is wall time from the start of the command to its end: preparing, measuring, training, evaluation and
saving. A run of minutes takes one thread or all, whichever is faster when tried; its evaluations take a fifth of the
minutes at most, the final one a tenth, if need be over a part of the validation text (glass evaluate measures all).

A resumed run keeps its settings; --steps, --minutes and the other limits can change, and count from the run's start.
Minutes count the time of all legs, not the time between them.
Its text is found where it was or near the run; if it is elsewhere now, name it: glass train --resume --out RUN DATA.
Any text with another hash is refused.
Its precision changes only if --precision or --set train.muon_precision=... asks for it.

Several processes, on one machine or many (docs/parallel.md); --shard when the model outgrows a device:

  torchrun --standalone --nproc-per-node 2 -m glassformer train book.txt --out runs/book
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.app.cli.choosing import add_run_arguments, chosen_run
from glassformer.app.cli.foreseeing import foreseen
from glassformer.app.cli.settings import changes_from
from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import quoted, use_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glassformer.runs.folder import Run
    from glassformer.training.foresight import Foresight
    from glassformer.training.parallel.processes import Processes
    from glassformer.training.reporting import Reporter
    from glassformer.training.trainer import Trainer, TrainingOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass train`."""
    add_run_arguments(parser)
    parser.add_argument("--resume", action="store_true", help="resume the run in --out, or the newest in runs/")


def run(arguments: argparse.Namespace) -> int:
    """Train a new run, or resume one, and report the checkpoint that is kept.

    From the command to the first gradient of a new run:

    1. `chosen_run` (`app/cli/choosing.py`) joins the settings: defaults, recipe, file, options.
    2. `foreseen` (`app/cli/foreseeing.py`): with the recipe auto, which is the default, or --minutes (10 if nothing is
       said), it reads, splits and tokenizes the text, times steps in a separate process and chooses the sizes.
    3. `joined` (`training/parallel/joining.py`) connects the processes of torchrun.
    4. `new_training` (`training/setup.py`): `text_of_run` prepares the text if step 2 did not, `try_threads` times
       steps of a discarded model with one thread and with all (runs of minutes), `fresh_model` builds the model,
       `create_run` makes the folder; the `Trainer` is yielded.
    5. `train` (`training/loop.py`): `Trainer.begin` saves the checkpoint of step 0 and, in a run of minutes, times one
       evaluation and one sample. Each step sets the learning rate and calls `compute_gradients`, which takes the rows
       of the step and calls `accumulate_gradients`: logits, loss, `loss.backward()`.
    """
    from glassformer.training.loop import train

    prepared_trainer = _resumed_trainer if arguments.resume else _new_trainer
    with prepared_trainer(arguments) as trainer:
        outcome = train(trainer)
    return _report(trainer.run, trainer.config, outcome, arguments.json)


@contextmanager
def _new_trainer(arguments: argparse.Namespace) -> Iterator[Trainer]:
    """Yield the trainer of a run that the arguments describe."""
    from glassformer.training.memory import keep_few_shapes
    from glassformer.training.parallel.joining import said_once

    with said_once():
        config, out = chosen_run(arguments)
        keep_few_shapes(config)
        config, foresight = foreseen(arguments, config, out)
    with new_run(config, out, arguments.began, foresight) as trainer:
        yield trainer


@contextmanager
def new_run(config: Config, out: Path, began: float, foresight: Foresight | None = None) -> Iterator[Trainer]:
    """Yield the trainer of a new run; inside, a signal stops its training politely.

    A run that this very start of torchrun began, before it restarted its processes, is resumed.

    Args:
        config: all settings.
        out: the folder of the run.
        began: the reading of `time.monotonic` from which `train.minutes` count.
        foresight: what was found out before; written into the folder.
    """
    from glassformer.training.clock import since
    from glassformer.training.parallel.joining import begun_by_this_job
    from glassformer.training.setup import new_training, resume_training

    @contextmanager
    def open_new(reporter: Reporter, processes: Processes) -> Iterator[Trainer]:
        if processes.on_rank_zero(lambda: begun_by_this_job(out, config)):
            with resume_training(out, {}, reporter, processes=processes, seconds=since(began)) as trainer:
                yield trainer
            return
        data = foresight.data if foresight is not None else None
        with new_training(config, out, reporter, processes=processes, data=data, seconds=since(began)) as trainer:
            if foresight is not None:
                foresight.write(trainer.run)
            yield trainer

    with _in_all_processes(config, open_new) as trainer:
        yield trainer


@contextmanager
def _resumed_trainer(arguments: argparse.Namespace) -> Iterator[Trainer]:
    """Yield the trainer of the run that the arguments name, or of the newest one, after its newest checkpoint."""
    from glassformer.model.device import choose_device
    from glassformer.model.precision import as_recorded
    from glassformer.runs.folder import open_run
    from glassformer.training.clock import since
    from glassformer.training.parallel.joining import said_once
    from glassformer.training.setup import newest_run, resume_training

    with said_once():
        for name in ("recipe", "config"):
            if getattr(arguments, name) is not None:
                raise GlassError(
                    f"--resume was given with {name} = {getattr(arguments, name)}",
                    "A resumed run keeps its own: leave it out.",
                )
        changes = changes_from(arguments)
        out = arguments.out or newest_run(Path("runs"))
        config = open_run(out).config().with_changes(changes)
        config = as_recorded(config, choose_device(config.train.device))
        given = {"source": arguments.data, "target": arguments.target}
        named = {name: value for name, value in given.items() if value is not None}

    def open_resumed(reporter: Reporter, processes: Processes) -> AbstractContextManager[Trainer]:
        seconds = since(arguments.began)
        return resume_training(out, changes, reporter, processes=processes, named=named, seconds=seconds)

    with _in_all_processes(config, open_resumed) as trainer:
        yield trainer


@contextmanager
def _in_all_processes(
    config: Config, open_trainer: Callable[[Reporter, Processes], AbstractContextManager[Trainer]]
) -> Iterator[Trainer]:
    """Yield the trainer that `open_trainer` makes after the processes of torchrun are connected; rank 0 reports.

    Inside, Ctrl-C and SIGTERM stop the training after a step, and snapshots are recorded if the run keeps them.
    """
    from glassformer.training.memory import forget_peak, keep_few_shapes, steady_heap
    from glassformer.training.parallel.joining import joined
    from glassformer.training.reporting import Silent, choose_reporter

    keep_few_shapes(config)
    with joined(config.train) as processes:
        reporter = choose_reporter() if processes.is_rank_zero else Silent()
        try:
            with open_trainer(reporter, processes) as trainer:
                steady_heap(trainer.config)
                forget_peak(trainer.stepper.device)
                if trainer.config.train.snapshots and processes.is_rank_zero:
                    from glassformer.inspection.replay.of_run import Recorder

                    trainer.observer = Recorder(trainer)
                with _stopped_by_signals(trainer):
                    yield trainer
        finally:
            reporter.close()


@contextmanager
def _stopped_by_signals(trainer: Trainer) -> Iterator[None]:
    """Inside, Ctrl-C or SIGTERM stops training after the step, with everything saved; a second one stops at once."""

    def say(text: str) -> None:
        if trainer.processes.is_rank_zero:
            print(text, file=sys.stderr)

    def stop(number: int, frame: object) -> None:
        if trainer.stop_requested:
            raise KeyboardInterrupt
        trainer.stop_requested = True
        say("stopping after this step; once more stops at once")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if trainer.stopping:
        say(f"stopped after step {trainer.state.step}, all saved")
        if trainer.state.best_loss is None:
            say("no evaluation yet: until the first one, best names the last checkpoint")
        say(f"Resume with: glass train --resume --out {quoted(trainer.run.folder)}")


def _report(run: Run, config: Config, outcome: TrainingOutcome | None, as_json: bool) -> int:
    """Print the loss of the kept checkpoint and what may be done with the run; return the exit code."""
    from glassformer.training.parallel.joining import speaks

    if outcome is None:
        return 130
    if not speaks():
        return 0
    from glassformer.model.device import choose_device
    from glassformer.training.foresight import compared
    from glassformer.training.memory import peak_memory
    from glassformer.training.validation import unknown_words

    peak = peak_memory(choose_device(config.train.device))
    comparison = compared(run, outcome, peak)
    validation = outcome.validation
    facts = {
        "run": str(run.folder),
        "step": outcome.step,
        "loss": validation.loss,
        "loss_ci95": validation.ci95,
        "perplexity": validation.perplexity,
        "bits_per_byte": outcome.bits_per_byte,
        "unknown_share": outcome.unknown_share,
        "validation_share": outcome.validation_share,
        "entropy": outcome.entropy,
        "train_seconds": outcome.train_seconds,
        "steps_done": outcome.last_step,
        "peak_memory_bytes": peak,
        "stopped_because": outcome.reason,
        "verdict": outcome.verdict,
    }
    whole = outcome.validation_share == 1
    extent = "all" if whole else f"an evenly spaced part ({outcome.validation_share:.1%} of the rows), of"
    bits = "" if outcome.bits_per_byte is None else f", {outcome.bits_per_byte:.3f} bits per byte"
    lines = [
        f"{outcome.verdict}; training ended because {outcome.reason}",
        f"step {outcome.step}: validation loss {validation.loss:.4f} {validation.margin} nats per {outcome.unit} over "
        f"{extent} {validation.tokens:,}, perplexity {validation.perplexity:.2f}{bits}",
    ]
    if outcome.unknown_share:
        lines.append(unknown_words(outcome.unknown_share))
    if outcome.entropy is not None:
        ratio = f"{validation.loss / outcome.entropy:.3f} times the true entropy of the text, {outcome.entropy:.4f}"
        lines.append(f"this is {ratio}: no model can do better")
    if comparison is not None:
        lines.append(comparison)
    lines.append(f"{run.folder} is ready: {use_of(run.folder, config.train.task)}")
    emit(SimpleReport(facts, lines), as_json)
    return 0
