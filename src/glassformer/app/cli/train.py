"""Train a model on your own text.

DATA is a text file (also .gz), a table (CSV, TSV, JSONL, Parquet or Arrow), a folder, two parallel files, - for
standard input, a folder written by glass data encode, or the name of a generated corpus (glass data list). Without
DATA, the recipe's own text is used, or the generated stories.

  glass train book.txt --out runs/book
  glass train book.txt --task masked --out runs/fill
  glass train mails.csv --task classify --out runs/mails
  glass train text.en text.de --task translate --out runs/en-de
  glass train articles.jsonl --task summarize --out runs/short
  glass train talks.jsonl --task chat --out runs/talks
  glass train book.txt --out runs/book2 --recipe shakespeare-nano --minutes 5
  glass train letters.txt --from runs/book --out runs/letters
  glass train --resume --out runs/book --steps 4000

A run on your own data without --recipe, --config and --from uses the recipe auto of its task (auto, auto-masked,
auto-classify, auto-translate, auto-summarize, auto-chat), which overrides the defaults below. It chooses sizes for this
machine and --minutes (default: 10); with --steps, or less than one minute, the run has the recipe's usual sizes.

--minutes is the wall-clock time of the whole command: preparing, measuring, training, evaluating and saving. On a CPU,
a run with --minutes uses one thread or all threads, whichever is faster in a test, unless train.threads is set. Its
evaluations take at most about a tenth of the time, and so does the final evaluation, if necessary on a part of the
validation text (glass evaluate uses all of it).

--from RUN starts from the tokenizer, model settings and weights of another run, which may be imported, and trains on
DATA, by default with the recipe fine-tune (a small learning rate, 3 minutes). A run of task lm can be fine-tuned for lm
or chat, a run of task masked for masked or classify, and a run of task translate or summarize for either of these; runs
of task classify or chat keep their task. The new run does not need the folder of the old run.

A resumed run keeps its settings; options may change those that docs/resuming.md lists, such as --steps and --device.
Limits count from the start of the run; minutes count the time of the command before and after resuming, not the time in
between. The command looks for the text at its old path and near the run; if it is elsewhere, name it: glass train
--resume --out RUN DATA. A text with another hash is refused. The precision changes only with --precision or --set
train.muon_precision=....

To train with several processes, on one machine or many (docs/parallel.md), start them with torchrun. Use --shard if the
model does not fit on one device:

  torchrun --standalone --nproc-per-node 2 -m glassformer train book.txt --out runs/book
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glassformer.app.cli.run_arguments import add_from_argument, add_run_arguments, request_from
from glassformer.app.cli.settings import changes_from
from glassformer.base.config import Config, command_for
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from glassformer.runs.folder import Run
    from glassformer.training.trainer import Trainer, TrainingOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass train`."""
    add_run_arguments(parser)
    add_from_argument(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume the run in --out, or the most recently created or trained run in runs/",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train a new run, or resume one, and report the checkpoint that is kept.

    From the command to the first gradient of a new run:

    1. `RunRequest` (`launch/request.py`) merges the settings: defaults, parent, corpus, recipe, file, options.
    2. `forecast_run` (`launch/forecasting.py`): without torchrun, if --minutes is at least 1 (the recipe auto, which is
       the default for your own text, sets 10) or --recipe is a recipe such as auto, it reads, splits and tokenizes the
       text, times steps in a separate process and, with a recipe such as auto, chooses the sizes.
    3. `joined` (`training/parallel/joining.py`) connects the processes of torchrun.
    4. `new_training` (`training/setup.py`): `text_of_run` prepares the text if step 2 did not; in a run with --minutes
       in one process on a CPU, `try_threads` times steps of a discarded model with one thread and with all threads;
       `fresh_model` builds the model, and `create_run` creates the folder. The `Trainer` is yielded.
    5. `train` (`training/loop.py`): `Trainer.begin` saves the checkpoint of step 0 and, in a run with --minutes, times
       evaluations and a sample. Each step sets the learning rate and calls `compute_gradients`, which takes the
       rows of the step and calls `accumulate_gradients`: logits, loss, `loss.backward()`.
    """
    from glassformer.launch.start import start_requested
    from glassformer.training.loop import train

    trainer_context = (
        _resume(arguments) if arguments.resume else start_requested(request_from(arguments), arguments.began)
    )
    with trainer_context as trainer:
        outcome = train(trainer)
    return _report(trainer.run, trainer.config, outcome, arguments.json)


def _resume(arguments: argparse.Namespace) -> AbstractContextManager[Trainer]:
    """Return a context manager that yields the trainer of the run to resume: `--out`, or the run used last in `runs`.

    The trainer is restored from the newest complete checkpoint.

    Raises:
        GlassError: an option was given that only a new run can have, or the run cannot be resumed.
    """
    from glassformer.launch.start import resume_run
    from glassformer.training.parallel.joining import report_errors_once

    with report_errors_once():
        for name in ("recipe", "config", "begin_from", "chat_template"):
            if getattr(arguments, name) is not None:
                option = f"--{name.removeprefix('begin_').replace('_', '-')}"
                raise GlassError(
                    f"--resume was given with {option} {getattr(arguments, name)}",
                    f"Remove {option}: a resumed run uses the settings in its run folder.",
                )
        changes = changes_from(arguments)
    paths = {"source": arguments.data, "target": arguments.target}
    given_paths = {name: value for name, value in paths.items() if value is not None}
    return resume_run(arguments.out, changes, given_paths, arguments.began)


def _report(run: Run, config: Config, outcome: TrainingOutcome | None, as_json: bool) -> int:
    """Print the loss of the kept checkpoint and the command to use the run; return the exit code.

    Without an outcome (training was stopped by Ctrl-C or SIGTERM), or on a rank other than 0, print nothing.
    """
    from glassformer.training.parallel.joining import is_rank_zero

    if outcome is None:
        return 130
    if not is_rank_zero():
        return 0
    from glassformer.model.device import choose_device
    from glassformer.training.memory import peak_memory
    from glassformer.training.plan_file import record_outcome
    from glassformer.training.validation import unknown_words

    peak = peak_memory(choose_device(config.train.device))
    comparison = record_outcome(run, outcome, peak)
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
        "first_loss": outcome.first_loss,
        "parent_losses": outcome.parent_losses,
    }
    is_complete = outcome.validation_share == 1
    extent = f"{'all ' if is_complete else ''}{validation.tokens:,} {outcome.unit}s"
    extent += "" if is_complete else f" in an evenly spaced part ({outcome.validation_share:.1%} of the rows)"
    bits = "" if outcome.bits_per_byte is None else f", {outcome.bits_per_byte:.3f} bits per byte"
    lines = [
        f"{outcome.verdict}; training ended because {outcome.reason}",
        f"step {outcome.step}: validation loss {validation.loss:.4f} {validation.margin} nats per {outcome.unit} over "
        f"{extent}, perplexity {validation.perplexity:.2f}{bits}",
    ]
    if outcome.unknown_share:
        lines.append(unknown_words(outcome.unknown_share))
    lines += _forgetting_lines(outcome)
    if outcome.entropy is not None:
        ratio = f"{validation.loss / outcome.entropy:.3f} times the true entropy of the text, {outcome.entropy:.4f}"
        lines.append(f"this is {ratio}, which no model can beat on average")
    if comparison is not None:
        lines.append(comparison)
    lines.append(f"{run.folder} is ready: {command_for(run.folder, config.train.task)}")
    emit(SimpleReport(facts, lines), as_json)
    return 0


def _forgetting_lines(outcome: TrainingOutcome) -> Iterator[str]:
    """Yield the validation loss of a fine-tuned run before training, and its losses on the text of the parent run.

    Yield nothing for runs that are not fine-tuned.
    """
    if outcome.first_loss is None:
        return
    yield f"before training, the validation loss was {outcome.first_loss:.4f} (same rows as evaluations in training)"
    if outcome.parent_losses is not None:
        before, after = outcome.parent_losses
        change = f"{after - before:.4f} forgotten" if after > before else f"{before - after:.4f} gained"
        yield f"on the parent's held-out text, the loss was {before:.4f} and is now {after:.4f}: {change}"
