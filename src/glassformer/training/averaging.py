"""Weight averaging over training steps; the average is evaluated, and saved as the weights of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from glassformer.training.eager_optimizers import EagerOptimizer

LATE = 8
"""Exponent in the average "last": the coefficient of step t is about proportional to t raised to this power."""
Kind = Literal["ema", "last"]


class WeightAverage(EagerOptimizer):
    """Average of parameters over the training steps; the last optimizer of a run, which steps after the others.

    The state of each parameter is a count of steps and a tensor `other`, which `exchange` swaps with the parameter.
    During training, `other` is the average; while the average is evaluated, or saved as the weights of a checkpoint,
    `other` is the weights. A checkpoint therefore has both: opening a run loads the average, and resuming a run
    restores the weights.

    Args:
        parameters: parameters that are trained.
        kind: "ema": an exponential moving average, a_t = d a_{t-1} + (1 - d) w_t, with decay d = (1 + t) / (10 + t),
            at most `decay`. "last": a_t = (1 - s) a_{t-1} + s w_t, with s = (n + 1) / (t + n) and n = `LATE`, in which
            the last steps have the largest coefficients, however long the run is (Shamir and Zhang 2013, equation 10).
        decay: maximum decay of "ema".
    """

    def __init__(self, parameters: Iterable[nn.Parameter], kind: Kind, decay: float) -> None:
        super().__init__(parameters, {"lr": 0.0})  # schedules set a learning rate, which is not used
        self.kind = kind
        self.decay = decay

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the average with the weights after a step."""
        for parameter in self._parameters():
            state = self.state[parameter]
            if not state:
                state["other"] = parameter.detach().clone()
                state["step"] = torch.ones(())  # PyTorch leaves state of this name on the CPU
                continue
            state["step"] += 1
            state["other"].lerp_(parameter.detach(), self._newest_coefficient(int(state["step"])))

    def _newest_coefficient(self, count: int) -> float:
        """Return the coefficient of the newest weights in the average after `count` steps."""
        if self.kind == "last":
            return (LATE + 1) / (count + LATE)
        return 1 - min(self.decay, (1 + count) / (10 + count))

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap the parameters with the average; do nothing before the first step, when there is no average."""
        for parameter in self._parameters():
            other: Tensor | None = self.state[parameter].get("other")
            if other is not None:
                weights = parameter.detach().clone()
                parameter.copy_(other)
                other.copy_(weights)

    @contextmanager
    def exchanged(self) -> Iterator[None]:
        """Return a context in which the values of the parameters are the average."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def _parameters(self) -> Iterator[nn.Parameter]:
        for group in self.param_groups:
            yield from group["params"]
