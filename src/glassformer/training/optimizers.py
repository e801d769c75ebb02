"""Optimizers of a run: AdamW, or Muon for hidden matrices and AdamW for the rest; optionally weight averaging."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from glassformer.base.config import TrainConfig
from glassformer.base.config.freezing import frozen_names
from glassformer.base.errors import GlassError
from glassformer.model.precision import choose_precision
from glassformer.model.transformer import Model
from glassformer.training.averaging import WeightAverage
from glassformer.training.eager_optimizers import AdamW
from glassformer.training.muon import Muon


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
