"""Dropout whose masks come from a given random generator, so that trainers in several threads do not share one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DEVICE_GENERATOR = Lock()
"""Lock of the generators of GPUs: a process has one for each GPU, and fused kernels draw only from that generator."""


class Dropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014) with an own random generator.

    With the same seed, the masks on a CPU are those of `nn.Dropout`. Copies have no generator.

    Attributes:
        generator: generator on the CPU, which `draw_dropout_from` sets; None: PyTorch's generator, as in `nn.Dropout`.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.generator: torch.Generator | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "generator": None}

    def forward(self, x: Tensor) -> Tensor:
        """Set each entry of x (any shape) to zero with probability p, and divide the others by 1 - p."""
        return dropped(x, self.p, self.generator) if self.training else x


def draw_dropout_from(model: nn.Module, generator: torch.Generator | None) -> None:
    """Let all dropout layers of a model draw from a generator on the CPU; None: from PyTorch's generator."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.generator = generator


def dropped(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Return x (any shape) after dropout with probability p, with a mask from `generator`; see `Dropout`."""
    if p == 0 or generator is None:
        return F.dropout(x, p)
    if x.is_cpu:
        noise = torch.empty_like(x).bernoulli_(1 - p, generator=generator)  # shape of x
        return x * noise.div_(1 - p) if p < 1 else x * noise  # shape of x
    with device_seeded_from(generator, x.device):
        return F.dropout(x, p)


@contextmanager
def device_seeded_from(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Seed the generator of a GPU with a number drawn from `generator` inside the context, and then restore its state.

    A kernel takes its seed when it is launched, so the lock is not held while the kernel runs.
    """
    seed = int(torch.randint(1 << 62, (), generator=generator))
    with DEVICE_GENERATOR:
        if device.type == "cuda":
            shared = torch.cuda.default_generators[
                torch.cuda.current_device() if device.index is None else device.index
            ]
            state: Any = shared.initial_seed(), shared.get_offset()
            shared.manual_seed(seed)
        else:
            shared = torch.mps._get_default_mps_generator()
            state = shared.get_state()
            shared.manual_seed(seed)
        try:
            yield
        finally:
            if device.type == "cuda":
                shared.manual_seed(state[0])
                shared.set_offset(state[1])
            else:
                shared.set_state(state)
