"""Context managers for evaluation (no dropout) and inference (no dropout, no gradients)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from threading import Lock

import torch
from torch import nn

SWITCHING = Lock()
SWITCHED: Counter[nn.Module] = Counter()
"""Modules that `evaluation_mode` has switched -> the number of its contexts, in all threads, that have not ended."""
IN_TRAINING = attrgetter("training")
"""Fast getter of a module's training flag: before every token, the flags of all modules are read."""


@contextmanager
def evaluation_mode(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Switch the model to evaluation mode inside the context, and restore the mode of every module afterwards.

    If several threads use this context with one model, the last one restores the modes.

    Args:
        model: any module.
        modules: all modules of the model, if the caller has them already; None: `model.modules()`.
    """
    modules = modules or list(model.modules())
    with SWITCHING:
        switched = (
            [each for each in modules if each.training or each in SWITCHED]
            if SWITCHED
            else [*filter(IN_TRAINING, modules)]
        )
        SWITCHED.update(switched)
        for module in switched:
            module.training = False
    try:
        yield
    finally:
        with SWITCHING:
            SWITCHED.subtract(switched)
            for module in switched:
                if not SWITCHED[module]:
                    del SWITCHED[module]
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
