"""Find the first non-finite tensor of a training step whose loss or gradients are not finite."""

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
    """Tensor that is divided among the processes."""

    def to_local(self) -> Tensor:
        """Return the part of this process."""


KINDS = ("the weight", "the output", "the gradient", "the loss")
"""Kinds of non-finite tensors, earliest cause first."""


def first_bad_tensor(model: Model, batches: Iterable[Batch]) -> str:
    """Return the name of the first non-finite tensor of a step: a weight, a layer's output, or a gradient.

    Weights are checked first, as a non-finite weight causes all later ones; then outputs in the order of the forward
    pass; then gradients. All batches are processed, because the processes of a sharded model must run together.
    """
    weights = [f"the weight {name}" for name, parameter in model.named_parameters() if not _finite(parameter)]
    bad: list[str] = []
    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        is_hook_point = isinstance(module, nn.Identity)  # hook points compute nothing; scores are -inf
        if not is_hook_point and not any(True for _ in module.children()):
            handles.append(module.register_forward_hook(_output_check(name, bad)))
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


def earliest_cause(found: Sequence[str]) -> str:
    """Return the earliest cause among the results of `first_bad_tensor` in several processes."""
    return min(found, key=lambda name: next(number for number, kind in enumerate(KINDS) if name.startswith(kind)))


def _output_check(name: str, bad: list[str]) -> Callable[[nn.Module, object, object], None]:
    """Return a forward hook that adds the name to `bad` if the module's output is not finite."""

    def hook(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output):
            bad.append(name)

    return hook


def _finite(tensor: Tensor) -> bool:
    """Return whether all values are finite; for a sharded tensor, in the part of this process."""
    here = tensor.to_local() if isinstance(tensor, ShardedTensor) else tensor
    return bool(torch.isfinite(here).all())
