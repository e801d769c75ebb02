"""Context managers for evaluation (no dropout) and inference (no dropout, no gradients)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter

import torch
from torch import nn

IN_TRAINING = attrgetter("training")
"""Fast getter of a module's training flag: before every token, the flags of all modules are read."""


@contextmanager
def evaluation_mode(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Switch the model to evaluation mode inside the context, and restore the mode of every module afterwards.

    Args:
        model: any module.
        modules: all modules of the model, if the caller has them already; None: `model.modules()`.
    """
    training = list(filter(IN_TRAINING, modules or model.modules()))
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def inference(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Switch off dropout and gradients inside the context: `evaluation_mode` and `torch.inference_mode`.

    For a sharded model (FSDP), `torch.no_grad` replaces `torch.inference_mode`: FSDP gathers weights in buffers that
    training uses again, and training cannot use tensors created in `torch.inference_mode`.
    """
    parameter = next(model.parameters(), None)
    without_gradients = torch.no_grad() if hasattr(parameter, "full_tensor") else torch.inference_mode()
    with evaluation_mode(model, modules), without_gradients:
        yield
