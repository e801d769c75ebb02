"""Checkpoints: everything needed to resume a run exactly.

Random state is not saved: each step seeds its random numbers from the run's seed, the step's number and the rank of the
process.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.base.config import Config
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import convert_os_errors, sync, write_folder
from glassformer.model.weights import load_tensors, load_weights, save_tensors
from glassformer.runs.folder import Run
from glassformer.training.optimizers import check_optimizer_state, flattened, unflatten
from glassformer.training.schedules import Plateau


@dataclass
class Times:
    """Times that a run with a time limit saves in each checkpoint; other runs leave them at their defaults.

    Attributes:
        other: wall seconds outside of training; at this checkpoint, the run has taken `train_seconds + other`. The
            time to write the checkpoint, and at the last checkpoint the work after it, are estimates.
        evaluations: wall seconds of all evaluations, their samples, the loss on the parent's text, and the measurement
            of these costs.
        began: wall-clock seconds of the run when the first step began.
        rows: number of validation rows in an evaluation during training; None: as in the settings.
        final_rows: number of validation rows in the final evaluation; None: not decided yet.
    """

    other: float = 0.0
    evaluations: float = 0.0
    began: float = 0.0
    rows: int | None = None
    final_rows: int | None = None


@dataclass
class TrainState:
    """Training progress of a run, without weights and optimizer tensors; saved in `state.json`.

    Attributes:
        step: number of completed optimizer steps.
        tokens: number of targets trained on: predicted tokens or, in classification, labels.
        train_seconds: training time, without evaluation, sampling and saving.
        best_step, best_loss: step and validation loss of the best evaluation so far. `best_loss` is None before the
            first evaluation, and if the best checkpoint was lost.
        waited: number of evaluations since the best one.
        plateau: state of the schedule "plateau".
        evaluations: (step, validation loss) of each evaluation.
        recent_losses: training losses since the last line of `metrics.jsonl`.
        oom_retries: number of times that memory ran out; each time, the micro-batch was halved for the rest of the run.
        times: wall times of a run with a time limit.
        logs: path of each log and snapshot, relative to the run folder -> the size in bytes (`bytes`) and the SHA-256
            (`sha256`) of its contents at this step.
        parent_rows, parent_loss: for a run with a parent, the number of rows of the parent's held-out text to measure,
            and the loss on these rows before the first step, in nats; 0 and None if they were not measured.
    """

    step: int = 0
    tokens: int = 0
    train_seconds: float = 0.0
    best_step: int = 0
    best_loss: float | None = None
    waited: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    recent_losses: list[float] = field(default_factory=list)
    oom_retries: int = 0
    times: Times = field(default_factory=Times)
    logs: dict[str, dict[str, Any]] = field(default_factory=dict)
    parent_rows: int = 0
    parent_loss: float | None = None

    @property
    def checkpoint_steps(self) -> tuple[int, int]:
        """Return the steps of the checkpoints `best` and `last`; both are `step` before the first evaluation."""
        return (self.step if self.best_loss is None else self.best_step), self.step


def save_checkpoint(run: Run, model: nn.Module, optimizers: list[Optimizer], state: TrainState, config: Config) -> Path:
    """Write `checkpoints/step-N` atomically, update `best` and `last` (see `point_to`), and return the new folder."""

    def fill(folder: Path) -> None:
        write_state(folder, run, state, save_state(folder, model, optimizers), config)

    final = run.checkpoints_folder / step_name(state.step)
    write_folder(final, fill)
    point_to(run, state)
    return final


def save_state(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    """Write weights and optimizer tensors into a folder; return the optimizer state that is not stored as tensors."""
    save_tensors(model.state_dict(), folder / "model.safetensors")
    tensors, numbers = flattened(optimizers)
    save_tensors(tensors, folder / "optimizer.safetensors")
    return numbers


def write_state(folder: Path, run: Run, state: TrainState, numbers: dict[str, Any], config: Config) -> None:
    """Write `state.json`: the run's id, its progress and settings, and the optimizer state not stored as tensors.

    The checkpoint's manifest has the SHA-256 of this file, so that later edits are detected.

    Args:
        folder: folder of the checkpoint.
        run: the run.
        state: progress of the run.
        numbers: the optimizer state that is not stored as tensors.
        config: settings of the run.
    """
    progress = asdict(state)
    facts = {
        "run": run.id,
        "logs": progress.pop("logs"),
        "progress": progress,
        "optimizer": numbers,
        "settings": config.model_dump(mode="json"),
    }
    (folder / "state.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def point_to(run: Run, state: TrainState) -> None:
    """Point `best` and `last` to the checkpoints of `state`, and delete all other checkpoints.

    The targets come from `state`, never from the pointers in the folder. The pointers are flushed to the disk before
    anything is deleted. The caller must hold the run's lock.
    """
    best, last = (step_name(step) for step in state.checkpoint_steps)
    run.point("best", run.checkpoints_folder / best)
    run.point("last", run.checkpoints_folder / last)
    with convert_os_errors(run.folder):
        sync(run.folder)
    run.remove_other_checkpoints({best, last})


def step_name(step: int) -> str:
    """Return the name of a step's checkpoint folder."""
    return f"step-{step:06d}"


def load_checkpoint(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> TrainState:
    """Load a checkpoint's weights and optimizer state in place, and return the progress of the run.

    Raises:
        GlassError: the checkpoint cannot be read, or belongs to another model, optimizer or version of this program.
    """
    tensors = _read_tensors(folder, model, optimizers)
    check_optimizer_state(folder, {name: (value.shape, value.dtype) for name, value in tensors.items()}, optimizers)
    try:
        saved = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        unflatten(optimizers, tensors, saved["optimizer"])
        facts = saved["progress"]
        facts["plateau"] = Plateau(**facts["plateau"])
        facts["times"] = Times(**facts["times"])
        facts["evaluations"] = [(int(step), float(loss)) for step, loss in facts["evaluations"]]
        return TrainState(**facts, logs=saved["logs"])
    except MALFORMED as error:
        raise GlassError(
            f"{folder} does not fit this run: {type(error).__name__} {error} in its state",
            "Use another checkpoint, or start a new run: this checkpoint belongs to another run or version.",
        ) from error


def _read_tensors(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Load the weights into the model, and return the optimizers' tensors, named as in `flattened`."""
    is_sharded = any(hasattr(parameter, "full_tensor") for parameter in model.parameters())
    if is_sharded or list(folder.glob("optimizer-*.safetensors")):
        from glassformer.training.parallel.sharded_files import read_sharded

        return read_sharded(folder, model, optimizers)
    load_weights(model, folder / "model.safetensors")
    return load_tensors(folder / "optimizer.safetensors")


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """Return the seed of one step's dropout; similar seeds, steps and ranks give very different results."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB + 1) % (1 << 63)


def seed_torch(seed: int) -> None:
    """Seed PyTorch's generators that are in use; `torch.manual_seed` also initializes unused ones, which takes 1 ms."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)
