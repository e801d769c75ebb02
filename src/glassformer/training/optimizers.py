"""Optimizers of a run: AdamW, or Muon for hidden matrices and AdamW for the rest; optionally weight averaging.

Their state is saved as named tensors and plain numbers; see `flattened`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glassformer.base.config import TrainConfig
from glassformer.base.config.freezing import frozen_names
from glassformer.base.errors import GlassError
from glassformer.model.precision import choose_precision
from glassformer.model.transformer import Model
from glassformer.training.averaging import WeightAverage
from glassformer.training.eager_optimizers import AdamW
from glassformer.training.muon import Muon

OPTIMIZER_STATE: dict[str, dict[str, bool]] = {
    "AdamW": {"step": False, "exp_avg": True, "exp_avg_sq": True},
    "Muon": {"momentum_buffer": True},
    "WeightAverage": {"other": True, "step": False},
}
"""Optimizer class -> name of a state entry -> whether it has the shape of its parameter; otherwise it is a scalar."""


def freeze(model: Model, parts: Sequence[str]) -> None:
    """Freeze components of a model in place: they get no gradients, no optimizer state and no updates.

    Raises:
        GlassError: a component has no parameters, such as a head that only uses the embedding's matrix, or no parameter
            is left to train.
    """
    for part in parts:
        prefixes = frozen_names([part], model.config)
        frozen = [parameter for name, parameter in model.named_parameters() if name.startswith(prefixes)]
        if not frozen:
            raise GlassError(
                f"train.freeze = {part}, but {part} has no parameters of its own in this model",
                "Freeze the embedding instead: the output layer of a tied model uses it.",
            )
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise GlassError(f"train.freeze = {', '.join(parts)} leaves no parameter to train", "Freeze fewer components.")


def make_optimizers(model: Model, config: TrainConfig) -> list[Optimizer]:
    """Freeze the components in `config.freeze`, and return the optimizers of all other parameters.

    Muon (Jordan et al. 2024), if chosen, trains the matrices inside the blocks; AdamW (Loshchilov and Hutter 2019)
    trains the rest. Unless `config.average` is "none", a `WeightAverage` of all these parameters is the last optimizer.

    Weight decay applies to parameters with two or more dimensions, not to biases and gains. Each parameter group has an
    entry `peak`, the learning rate that schedules scale.

    Raises:
        GlassError: as in `freeze`.
    """
    freeze(model, config.freeze)
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    # Without heads, the matrices of an attention layer are empty.
    hidden_matrices = [p for name, p in trainable if ".blocks." in name and p.ndim == 2 and p.numel()]
    hidden_matrices = hidden_matrices if config.optimizer == "muon" else []
    muon_ids = {id(p) for p in hidden_matrices}
    adamw_parameters = [p for _, p in trainable if id(p) not in muon_ids]
    optimizers: list[Optimizer] = [_adamw(adamw_parameters, config)] if adamw_parameters else []
    if hidden_matrices:
        dtype = choose_precision(config.muon_precision, hidden_matrices[0].device)
        muon = Muon(hidden_matrices, config.muon_learning_rate, config.weight_decay, config.muon_momentum, dtype)
        optimizers.append(muon)
    if config.average != "none":
        optimizers.append(WeightAverage([p for _, p in trainable], config.average, config.average_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def _adamw(parameters: list[nn.Parameter], config: TrainConfig) -> Optimizer:
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,  # one kernel for all parameters takes a third of the time
    )


def set_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Set every learning rate to its peak times `factor`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor


def flattened(optimizers: list[Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the optimizer state: its tensors and its plain numbers.

    Names consist of the index of the optimizer, the index of the parameter and the entry, such as `0.3.exp_avg`.
    """
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


def unflatten(optimizers: list[Optimizer], tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Load into the optimizers the state that `flattened` returned."""
    for i, optimizer in enumerate(optimizers):
        state_dict = optimizer.state_dict()
        state: dict[int, dict[str, Any]] = {}
        for key, value in {**tensors, **numbers}.items():
            optimizer_index, parameter, name = key.split(".", 2)
            if int(optimizer_index) == i:
                # Loaded tensors are views of the file; a copy lets the file be closed.
                copy = value.clone() if isinstance(value, Tensor) else value
                state.setdefault(int(parameter), {})[name] = copy
        state_dict["state"] = state
        optimizer.load_state_dict(state_dict)


def check_optimizer_state(
    folder: Path, saved_tensors: Mapping[str, tuple[torch.Size, torch.dtype]], optimizers: list[Optimizer]
) -> None:
    """Raise an error that names the first mismatch if optimizer state does not fit these optimizers.

    PyTorch does not check this when it loads the state, and would crash in the next step.

    Args:
        folder: the checkpoint, for the message.
        saved_tensors: tensor name, as in `flattened` -> shape and dtype.
        optimizers: the optimizers to load into.

    Raises:
        GlassError: a name, shape or dtype differs.
    """
    expected = _expected_state(optimizers)
    for name, facts in saved_tensors.items():
        if name not in expected:
            problem = f"it has {name}, which the optimizer of these settings does not have"
        elif facts != expected[name]:
            needed = _format_shape_and_dtype(*expected[name])
            problem = f"{name} is {_format_shape_and_dtype(*facts)}, but the optimizer of these settings needs {needed}"
        else:
            continue
        raise _optimizer_mismatch(folder, problem)
    parameters = {name.rpartition(".")[0] for name in saved_tensors}  # parameters that have state
    for name in expected:
        if name.rpartition(".")[0] in parameters and name not in saved_tensors:
            raise _optimizer_mismatch(folder, f"it lacks {name}")


def _expected_state(optimizers: list[Optimizer]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return the shape and dtype of each optimizer tensor after a step; the tensors are named as in `flattened`."""
    expected: dict[str, tuple[torch.Size, torch.dtype]] = {}
    for i, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, parameter in enumerate(parameters):
            for name, is_like_parameter in OPTIMIZER_STATE[type(optimizer).__name__].items():
                facts = (parameter.shape, parameter.dtype) if is_like_parameter else (torch.Size(), torch.float32)
                expected[f"{i}.{number}.{name}"] = facts
    return expected


def _format_shape_and_dtype(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{tuple(shape)} {str(dtype).removeprefix('torch.')}"


def _optimizer_mismatch(folder: Path, problem: str) -> GlassError:
    return GlassError(
        f"the optimizer state in {folder} does not fit this run's settings: {problem}",
        "Restore the original config.toml of this run, or start a new run.",
    )
