"""Checkpoints: all that a run needs to go on as if it had never stopped.

Random numbers need no saving: each step seeds its own from the run's seed and its number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.base.config import Config
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import clear_disk_errors, sync, write_folder
from glassformer.model.weights import load_tensors, load_weights, save_tensors
from glassformer.runs.folder import Run
from glassformer.training.clock import Times
from glassformer.training.schedules import Plateau

OPTIMIZER_STATE: dict[str, dict[str, bool]] = {
    "AdamW": {"step": False, "exp_avg": True, "exp_avg_sq": True},
    "Muon": {"momentum_buffer": True},
    "WeightAverage": {"other": True, "step": False},
}
"""Optimizer -> its state for each parameter -> whether it has the parameter's shape; otherwise it is one number."""


@dataclass
class TrainState:
    """The state of a run beside its tensors. Everything in it is saved in `state.json`.

    Attributes:
        step: optimizer steps done.
        tokens: targets learnt from.
        train_seconds: training time alone, without evaluation, sampling and saving.
        best_step, best_loss: the best evaluation so far.
        waited: evaluations since the best one.
        plateau: of the schedule of that name.
        evaluations: (step, validation loss) of all evaluations.
        recent_losses: training losses since the last line of the log.
        oom_retries: how often memory ran out; each time the micro-batch was halved from then on.
        times: of the clock of a run limited by minutes.
        parent_rows, parent_loss: of a run that began from a parent, the rows of the parent's held-out text that are
            measured, and the loss on them before the first step, in nats.
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
    parent_rows: int = 0
    parent_loss: float | None = None

    @property
    def kept_steps(self) -> tuple[int, int]:
        """Return the steps that `best` and `last` name: until the first evaluation, both name the newest."""
        return (self.step if self.best_loss is None else self.best_step), self.step


def save_checkpoint(run: Run, model: nn.Module, optimizers: list[Optimizer], state: TrainState, config: Config) -> Path:
    """Write `checkpoints/step-N`, whole or not at all, and make `last` (and `best`, if it is the best) name it."""

    def fill(folder: Path) -> None:
        write_state(folder, state, save_state(folder, model, optimizers), config)

    final = run.checkpoints / step_name(state.step)
    write_folder(final, fill)
    point_to(run, state)
    return final


def save_state(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    """Write weights and optimizer state into a folder; returns the optimizers' plain numbers."""
    save_tensors(model.state_dict(), folder / "model.safetensors")
    tensors, numbers = flattened(optimizers)
    save_tensors(tensors, folder / "optimizer.safetensors")
    return numbers


def write_state(folder: Path, state: TrainState, numbers: dict[str, Any], config: Config) -> None:
    """Write `state.json`: the progress of the run, the optimizers' plain numbers and the settings they come from.

    The checkpoint's manifest holds the SHA-256 of this file, so that an edit of the settings in it is noticed.
    """
    progress = asdict(state)
    if state.parent_loss is None:
        del progress["parent_rows"], progress["parent_loss"]  # older versions know no parents, and can read the rest
    facts = {"progress": progress, "optimizer": numbers, "settings": config.model_dump(mode="json")}
    (folder / "state.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def recorded_settings(checkpoint: Path) -> dict[str, dict[str, Any]] | None:
    """Return the settings that a checkpoint was made with; None where an older version wrote it."""
    try:
        facts = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        return {section: dict(values) for section, values in facts["settings"].items()}
    except (OSError, *MALFORMED):
        return None


def point_to(run: Run, state: TrainState) -> None:
    """Make `best` and `last` name the checkpoints of `state`, and delete all others.

    The names are those that this process computed; a pointer in the folder is never trusted. They are on the disk
    before anything is deleted. The caller holds the run's lock.
    """
    best, last = (step_name(step) for step in state.kept_steps)
    run.point("best", run.checkpoints / best)
    run.point("last", run.checkpoints / last)
    with clear_disk_errors(run.folder):
        sync(run.folder)
    run.remove_other_checkpoints({best, last})


def step_name(step: int) -> str:
    """The name of a step's checkpoint folder."""
    return f"step-{step:06d}"


def load_checkpoint(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> TrainState:
    """Put a checkpoint's weights and optimizer state in place, and return where the run was.

    Raises:
        GlassError: it is of another model or optimizer, or of another version of this program.
    """
    tensors = _read_tensors(folder, model, optimizers)
    check_optimizer_state(folder, {name: (value.shape, value.dtype) for name, value in tensors.items()}, optimizers)
    try:
        saved = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        _unflatten(optimizers, tensors, saved["optimizer"])
        facts = saved["progress"]
        facts["plateau"] = Plateau(**facts["plateau"])
        facts["times"] = Times(**facts.get("times", {}))  # older versions kept none
        facts["evaluations"] = [(int(step), float(loss)) for step, loss in facts["evaluations"]]
        return TrainState(**facts)
    except MALFORMED as error:
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
    """Fill the optimizers from `flattened` state."""
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


def check_optimizer_state(
    folder: Path, found: Mapping[str, tuple[torch.Size, torch.dtype]], optimizers: list[Optimizer]
) -> None:
    """Raise an error if optimizer state does not fit these optimizers; it names the first difference.

    Args:
        folder: the checkpoint, for the error.
        found: shape and dtype of each tensor, named as `flattened` names them.
        optimizers: the optimizers to fill.

    Raises:
        GlassError: a name, shape or dtype differs. PyTorch checks none of them, and crashes in the next step.
    """
    wanted = _expected_state(optimizers)
    for name, facts in found.items():
        if name not in wanted:
            problem = f"it has {name}, which the optimizer of these settings does not keep"
        elif facts != wanted[name]:
            problem = f"{name} is {_shown(*facts)}, but the optimizer of these settings needs {_shown(*wanted[name])}"
        else:
            continue
        raise _another_optimizer(folder, problem)
    begun = {name.rpartition(".")[0] for name in found}
    for name in wanted:
        if name.rpartition(".")[0] in begun and name not in found:
            raise _another_optimizer(folder, f"it lacks {name}")


def _expected_state(optimizers: list[Optimizer]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return shape and dtype of all optimizer state after a step, named as `flattened` names it."""
    wanted: dict[str, tuple[torch.Size, torch.dtype]] = {}
    for i, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, parameter in enumerate(parameters):
            for name, alike in OPTIMIZER_STATE[type(optimizer).__name__].items():
                facts = (parameter.shape, parameter.dtype) if alike else (torch.Size(), torch.float32)
                wanted[f"{i}.{number}.{name}"] = facts
    return wanted


def _shown(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{tuple(shape)} {str(dtype).removeprefix('torch.')}"


def _another_optimizer(folder: Path, problem: str) -> GlassError:
    return GlassError(
        f"the optimizer state in {folder} does not fit this run's settings: {problem}",
        "Restore the run's own config.toml, or start a new run.",
    )


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of one step's dropout: far apart for near runs, steps and processes, the same on every machine."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB + 1) % (1 << 63)


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Make the random numbers of one training step a function of (seed, step, rank of the process) alone.

    Each generator in use is seeded itself: `torch.manual_seed` also prepares those that are not, which takes 1 ms.
    """
    number = step_seed(seed, step, rank)
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(number)
