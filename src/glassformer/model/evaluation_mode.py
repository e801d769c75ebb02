"""Evaluation mode for a while: no dropout, and with `inference` no gradients either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter

import torch
from torch import nn

IN_TRAINING = attrgetter("training")
"""Whether a module is in training mode; a token loop asks all modules at every token, and this is the fastest way."""


@contextmanager
def evaluation_mode(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Turn dropout off inside; afterwards every module of the model is in the mode it was in.

    Args:
        model: any.
        modules: all modules of the model, where the caller has listed them already.
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
    """Turn dropout and gradients off inside: `evaluation_mode` and `torch.inference_mode`.

    A sharded model (FSDP) gathers its weights in buffers that training uses again, which tensors of `inference_mode`
    cannot be: it has `torch.no_grad`.
    """
    parameter = next(model.parameters(), None)
    without_gradients = torch.no_grad() if hasattr(parameter, "full_tensor") else torch.inference_mode()
    with evaluation_mode(model, modules), without_gradients:
        yield
