"""Evaluation mode for a while: no dropout, and with `inference` no gradients either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Turn dropout off inside; afterwards every module of the model is in the mode it was in.

    Args:
        model: any.
        modules: all modules of the model, where the caller has listed them already.
    """
    training = [module for module in modules or model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def inference(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Turn dropout and gradients off inside: `evaluation_mode` and `torch.inference_mode`."""
    with evaluation_mode(model, modules), torch.inference_mode():
        yield
