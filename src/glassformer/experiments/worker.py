"""Worker process that trains runs of a grid: `python -m glassformer.experiments.worker FOLDER`.

It reads run names from standard input, one per line, and prints each name when its result is written. A run is trained
as with `glass train`, except that components of its model may be removed. When standard input ends, the parent process
has ended, so the worker exits at once; the current run can later be resumed from its last checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from glassformer.base.errors import GlassError
from glassformer.base.locks import folder_lock
from glassformer.base.sealed import write_sealed
from glassformer.experiments.grid import REMOVE, Grid, GridJob
from glassformer.experiments.part_removal import ALTERATIONS
from glassformer.inspection.replay.of_run import Recorder
from glassformer.model.build import build_model
from glassformer.text.batches import Batch
from glassformer.text.rows import Row
from glassformer.training import loop
from glassformer.training.journal import read_samples
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training, resume_training
from glassformer.training.trainer import Trainer
from glassformer.training.validation import validation_loss

PATIENCE = 60.0
"""Seconds to wait for another process that still holds the lock of a run, such as a process that is being killed."""


def train(folder: Path, grid: Grid, job: GridJob) -> dict[str, Any]:
    """Train one run of a grid, or resume it if it was started before, and return its result.

    Raises:
        GlassError: as in `glass train`.
    """
    run_folder = folder / "runs" / job.name
    alteration = ALTERATIONS[job.cell.removed] if job.cell.removed else None
    opened: AbstractContextManager[Trainer]
    if (run_folder / "config.toml").exists():
        _wait_until_free(run_folder)
        opened = resume_training(run_folder, {}, Silent(), alteration)
    else:
        opened = new_training(job.config, run_folder, Silent(), alteration)
    with opened as trainer:
        return _result(trainer, grid, job)


def _result(trainer: Trainer, grid: Grid, job: GridJob) -> dict[str, Any]:
    """Finish the training, and return its result."""
    if trainer.config.train.snapshots:
        trainer.observer = Recorder(trainer)
    outcome = loop.train(trainer)
    assert outcome is not None, "a worker's trainer is never asked to stop"
    result = {
        "loss": outcome.validation.loss,
        "loss_ci95": outcome.validation.ci95,
        "bits_per_byte": outcome.bits_per_byte,
        "unknown_share": outcome.unknown_share,
        "validation_share": outcome.validation_share,
        "unit": outcome.unit,
        "step": outcome.step,
        "last_step": outcome.last_step,
        "entropy": outcome.entropy,
        "train_seconds": outcome.train_seconds,
        "reason": outcome.reason,
        "verdict": outcome.verdict,
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "choices": trainer.task.choices,
        "text_hash": trainer.run.manifest()["data"]["text_hash"],
        "writes": _last_sample(trainer),
    }
    if REMOVE in grid.varied and job.config.train.task == "lm":
        result["writing_loss"] = writing_loss(trainer)
        result["restored_loss"] = restored_loss(trainer)
    return result


def writing_loss(trainer: Trainer) -> float:
    """Return the mean loss in nats of the first token after each validation window.

    A model must predict this token when it generates text. The token is never in the input, so even a model without a
    causal mask cannot attend to it.
    """

    def last_only(rows: Sequence[Row]) -> Batch:
        batch = Batch.from_rows(rows)
        last = batch.attention_mask.sum(dim=1) - 1  # (B)
        loss_mask = torch.zeros_like(batch.loss_mask)  # (B, T)
        loss_mask[torch.arange(len(last)), last] = True
        return replace(batch, loss_mask=loss_mask, n_targets=len(last))

    device = trainer.stepper.device
    dtype = trainer.stepper.dtype
    return validation_loss(trainer.model, trainer.task.held_out(None), device, dtype, collate=last_only).loss


def restored_loss(trainer: Trainer) -> float | None:
    """Return the loss in nats per token of the same weights in a complete model; None if some weights are missing."""
    complete_model = build_model(trainer.config.model, trainer.model.vocab_size)
    weights = trainer.model.state_dict()
    if complete_model.state_dict().keys() != weights.keys():
        return None
    complete_model.load_state_dict(weights)
    device = trainer.stepper.device
    dtype = trainer.stepper.dtype
    rows = trainer.task.held_out(None)
    return validation_loss(complete_model.to(device), rows, device, dtype).loss


def _wait_until_free(run_folder: Path) -> None:
    """Wait until no other process holds the lock of the run, for at most `PATIENCE` seconds.

    If the lock is still held afterwards, resuming the run raises an error.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with folder_lock(run_folder):
                return
        except GlassError:
            time.sleep(0.1)


def _last_sample(trainer: Trainer) -> str:
    """Return the last sample of the run, including the prompt."""
    return read_samples(trainer.run)[-1][1].strip()


def _train_and_write(folder: Path, grid: Grid, name: str) -> dict[str, Any]:
    """Train the run with this name; write and return its result, or a failure with its cause."""
    try:
        result = train(folder, grid, grid.find(name))
    except GlassError as error:
        result = {"failed": error.problem, "remedy": error.remedy}
    except Exception as error:  # a bug in one run must not stop the other runs
        traceback.print_exc()
        remedy = f"This is a bug in glassformer: report it with the traceback in {folder / 'worker.log'}."
        result = {"failed": f"unexpected: {type(error).__name__}: {error}", "remedy": remedy}
    write_sealed(folder / "results" / f"{name}.json", result)
    return result


def _read_names(names: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        names.put(line.strip())
    os._exit(1)  # safe at any point, because a run can be resumed from its last checkpoint


def main(folder: Path) -> None:
    """Train the runs whose names are read from standard input, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent stops this process
    names: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_names, args=(names,), daemon=True).start()
    grid = Grid.read(folder)
    while True:
        name = names.get()
        _train_and_write(folder, grid, name)
        print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
