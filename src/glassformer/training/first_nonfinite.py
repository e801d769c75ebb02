"""Find the first non-finite tensor of a training step whose loss or gradients are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from glassformer.model.transformer import Model
from glassformer.tasks.losses import logits_of
from glassformer.text.batches import Batch


@runtime_checkable
class ShardedTensor(Protocol):
    """Tensor that is sharded over the processes."""

    def to_local(self) -> Tensor:
        """Return the shard of this process."""


class Kind(IntEnum):
    """Types of tensors, the earliest cause first."""

    WEIGHT = 0
    OUTPUT = 1
    GRADIENT = 2
    LOSS = 3


WORDS = {
    Kind.WEIGHT: "the weight {name}",
    Kind.OUTPUT: "the output of {name}",
    Kind.GRADIENT: "the gradient of {name}",
    Kind.LOSS: "the loss",
}


@dataclass(frozen=True)
class BadTensor:
    """A tensor with a value that is not finite.

    Attributes:
        kind: type of the tensor.
        name: name of the parameter or the module; empty for the loss.
    """

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return WORDS[self.kind].format(name=self.name)


def first_bad_tensor(model: Model, batches: Iterable[Batch]) -> BadTensor:
    """Return the first non-finite tensor of a step: a weight, the output of a module, a gradient, or the loss.

    Weights are checked first, because a non-finite weight makes outputs and gradients non-finite too; then outputs in
    the order of the forward pass; then gradients. All batches are run, because the processes of a sharded model must
    make the same forward passes.
    """
    weights = [BadTensor(Kind.WEIGHT, name) for name, each in model.named_parameters() if not _is_finite(each)]
    bad_outputs: list[str] = []
    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        is_hook_point = isinstance(module, nn.Identity)  # identities compute nothing; masked scores are -inf
        if not is_hook_point and not any(True for _ in module.children()):
            handles.append(module.register_forward_hook(_recording_hook(name, bad_outputs)))
    try:
        with torch.no_grad():
            for batch in batches:
                if not _is_finite(logits_of(model, batch)):
                    bad_outputs.append("the head")
    finally:
        for handle in handles:
            handle.remove()
    outputs = [BadTensor(Kind.OUTPUT, name) for name in bad_outputs]
    gradients = [
        BadTensor(Kind.GRADIENT, name)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not _is_finite(parameter.grad)
    ]
    return [*weights, *outputs, *gradients, BadTensor(Kind.LOSS)][0]


def earliest(bad_tensors: Sequence[BadTensor]) -> BadTensor:
    """Return the earliest cause among the non-finite tensors of several processes."""
    return min(bad_tensors, key=lambda bad: bad.kind)


def _recording_hook(name: str, bad_outputs: list[str]) -> Callable[[nn.Module, object, object], None]:
    """Return a hook that appends the name to `bad_outputs` if the module's output is not finite."""

    def hook(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not _is_finite(output):
            bad_outputs.append(name)

    return hook


def _is_finite(tensor: Tensor) -> bool:
    """Return whether all values are finite; of a sharded tensor, only this process's shard is checked."""
    local = tensor.to_local() if isinstance(tensor, ShardedTensor) else tensor
    return bool(torch.isfinite(local).all())
