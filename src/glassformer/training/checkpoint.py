"""Checkpoints: all that a run needs to go on as if it had never stopped.

Random numbers need no saving: each step seeds its own from the run's seed and its number.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.errors import GlassError
from glassformer.files import write_folder
from glassformer.model.weights import load_tensors, load_weights, save_tensors
from glassformer.runs import Run
from glassformer.training.schedules import Plateau


@dataclass
class TrainState:
    """Where a run is. Everything in it is saved in `state.json`.

    Attributes:
        step: optimizer steps done.
        tokens: targets learnt from.
        train_seconds: training time alone, without evaluation, sampling and saving.
        best_step, best_loss: the best evaluation so far.
        waited: evaluations since the best one.
        plateau: of the schedule of that name.
        evaluations: (step, validation loss) of all evaluations.
        recent_losses: training losses since the last line of the log.
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


def save_checkpoint(run: Run, model: nn.Module, optimizers: list[Optimizer], state: TrainState) -> Path:
    """Write `checkpoints/step-N`, whole or not at all, and make `last` (and `best`, if it is) name it."""

    def fill(folder: Path) -> None:
        write_state(folder, state, save_state(folder, model, optimizers))

    final = run.checkpoints / step_name(state.step)
    write_folder(final, fill)
    point_to(run, final, state)
    return final


def save_state(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    """Write weights and optimizer state into a folder; returns the optimizers' plain numbers."""
    save_tensors(model.state_dict(), folder / "model.safetensors")
    tensors, numbers = flattened(optimizers)
    save_tensors(tensors, folder / "optimizer.safetensors")
    return numbers


def write_state(folder: Path, state: TrainState, numbers: dict[str, Any]) -> None:
    """Write what is not a tensor: where the run is, and the optimizers' plain numbers."""
    text = json.dumps({"progress": asdict(state), "optimizer": numbers}, indent=1)
    (folder / "state.json").write_text(text, encoding="utf-8")


def point_to(run: Run, checkpoint: Path, state: TrainState) -> None:
    """Make `last` (and `best`, if it is) name a new checkpoint, and delete those that nothing names."""
    if state.best_step == state.step:
        run.point("best", checkpoint)
    run.point("last", checkpoint)
    run.remove_other_checkpoints()


def step_name(step: int) -> str:
    """The name of a step's checkpoint folder."""
    return f"step-{step:06d}"


def load_checkpoint(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> TrainState:
    """Put a checkpoint's weights and optimizer state in place, and return where the run was.

    Raises:
        GlassError: it is of another model, or of another version of this program.
    """
    tensors = _read_tensors(folder, model, optimizers)
    try:
        saved = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        _unflatten(optimizers, tensors, saved["optimizer"])
        facts = saved["progress"]
        facts["plateau"] = Plateau(**facts["plateau"])
        facts["evaluations"] = [(int(step), float(loss)) for step, loss in facts["evaluations"]]
        return TrainState(**facts)
    except (ValueError, KeyError, TypeError) as error:
        raise GlassError(
            f"{folder} does not fit this run: {type(error).__name__} {error} in its state",
            "It belongs to another run or version: use another checkpoint, or start a new run.",
        ) from error


def _read_tensors(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Fill the model, and return the optimizers' tensors as `flattened` names them."""
    in_parts = any(hasattr(parameter, "full_tensor") for parameter in model.parameters())
    if in_parts or list(folder.glob("optimizer-*.safetensors")):
        from glassformer.training.parallel.sharded_files import read_sharded

        return read_sharded(folder, model, optimizers)
    load_weights(model, folder / "model.safetensors")
    return load_tensors(folder / "optimizer.safetensors")


def flattened(optimizers: list[Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Optimizer state as tensors named `optimizer.parameter.name`, and the plain numbers apart."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for i, optimizer in enumerate(optimizers):
        for parameter, values in optimizer.state_dict()["state"].items():
            for name, value in values.items():
                key = f"{i}.{parameter}.{name}"
                if isinstance(value, Tensor):
                    tensors[key] = value
                else:
                    numbers[key] = value
    return tensors, numbers


def _unflatten(optimizers: list[Optimizer], tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    for i, optimizer in enumerate(optimizers):
        whole = optimizer.state_dict()
        state: dict[int, dict[str, Any]] = {}
        for key, value in {**tensors, **numbers}.items():
            owner, parameter, name = key.split(".", 2)
            if int(owner) == i:
                # Read tensors are views of the file; the optimizer must not keep it open.
                copy = value.clone() if isinstance(value, Tensor) else value
                state.setdefault(int(parameter), {})[name] = copy
        whole["state"] = state
        optimizer.load_state_dict(whole)


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of one step's dropout: far apart for near runs, steps and processes, the same on every machine."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB + 1) % (1 << 63)


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Make the random numbers of one training step a function of (seed, step, rank of the process) alone."""
    torch.manual_seed(step_seed(seed, step, rank))
