"""Find the tensor that went wrong first when a loss is not a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from glassformer.model.transformer import Model
from glassformer.tasks.losses import logits_of
from glassformer.text.batches import Batch


@runtime_checkable
class ShardedTensor(Protocol):
    """A tensor of which every process has a part."""

    def to_local(self) -> Tensor:
        """Return the part that this process has."""


KINDS = ("the weight", "the output", "the gradient", "the loss")
"""Kinds of bad tensors, the earliest cause first."""


def first_bad_tensor(model: Model, batches: Iterable[Batch]) -> str:
    """Names the first non-finite tensor of a step: a weight, a layer's output, or a gradient.

    Weights are looked at first, since a bad weight is the cause of all that follows; then outputs in the order
    they are made; then gradients. Every batch is gone through, for sharded models run only together.
    """
    weights = [f"the weight {name}" for name, parameter in model.named_parameters() if not _finite(parameter)]
    bad: list[str] = []
    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        is_hook_point = isinstance(module, nn.Identity)  # it makes nothing, and scores are -inf where keys are hidden
        if not is_hook_point and not any(True for _ in module.children()):
            handles.append(module.register_forward_hook(_noting(name, bad)))
    try:
        with torch.no_grad():
            for batch in batches:
                if not _finite(logits_of(model, batch)):
                    bad.append("the head")
    finally:
        for handle in handles:
            handle.remove()
    outputs = [f"the output of {name}" for name in bad]
    gradients = [
        f"the gradient of {name}"
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not _finite(parameter.grad)
    ]
    return [*weights, *outputs, *gradients, "the loss"][0]


def worst(found: Sequence[str]) -> str:
    """The earliest cause of those that several processes found."""
    return min(found, key=lambda name: next(number for number, kind in enumerate(KINDS) if name.startswith(kind)))


def _noting(name: str, bad: list[str]) -> Callable[[nn.Module, object, object], None]:
    """A hook that adds the name to `bad` when the module's output is not finite."""

    def hook(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output):
            bad.append(name)

    return hook


def _finite(tensor: Tensor) -> bool:
    """Return whether all numbers are finite; of a sharded tensor, in the part that is here."""
    here = tensor.to_local() if isinstance(tensor, ShardedTensor) else tensor
    return bool(torch.isfinite(here).all())
