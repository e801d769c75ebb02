"""When a loss is not a number: which tensor went wrong first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from glassformer.data.batches import Batch
from glassformer.model.families import Model
from glassformer.training.objectives import logits_of


def first_bad_tensor(model: Model, batches: Iterable[Batch]) -> str:
    """Names the first non-finite tensor of a step: a weight, a layer's output, or a gradient.

    Weights are looked at first, since a bad weight is the cause of all that follows; then outputs in the order
    they are made; then gradients.
    """
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            return f"the weight {name}"
    bad: list[str] = []
    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            handles.append(module.register_forward_hook(_noting(name, bad)))
    try:
        with torch.no_grad():
            for batch in batches:
                if not bad and not _finite(logits_of(model, batch)):
                    bad.append("the head")
    finally:
        for handle in handles:
            handle.remove()
    if bad:
        return f"the output of {bad[0]}"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"the gradient of {name}"
    return "the loss"


def _noting(name: str, bad: list[str]) -> Callable[[nn.Module, object, object], None]:
    """A hook that adds the name to `bad` when the module's output is not finite."""

    def hook(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output):
            bad.append(name)

    return hook


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())
