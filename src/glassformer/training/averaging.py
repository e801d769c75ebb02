"""The average of a model's weights over the steps of its training, which is evaluated and kept in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from glassformer.training.eager_optimizers import EagerOptimizer

LATE = 8
"""How much more late steps weigh in the average "last": step t weighs about t to this power."""
Kind = Literal["ema", "last"]


class WeightAverage(EagerOptimizer):
    """Keeps the average of parameters. It stands last among the optimizers of a run, and steps when they have.

    Its state for each parameter is a count of steps and a tensor `other`, which `exchange` swaps with the parameter.
    While training, `other` is the average; while the average is evaluated, or saved as the weights of a checkpoint, it
    is the weights themselves. So a checkpoint has both: opening a run loads the average, resuming restores the weights.

    Args:
        parameters: that are trained.
        kind: "ema": an exponential moving average, a_t = d a_{t-1} + (1 - d) w_t, with the decay d = (1 + t) / (10 + t)
            until that is `decay`. "last": a_t = (1 - s) a_{t-1} + s w_t, with s = (n + 1) / (t + n) and n = `LATE`, in
            which the last steps weigh most, however long the run is (Shamir and Zhang 2013, equation 10).
        decay: of "ema".
    """

    def __init__(self, parameters: Iterable[nn.Parameter], kind: Kind, decay: float) -> None:
        super().__init__(parameters, {"lr": 0.0})  # a rate that schedules may scale, and nothing reads
        self.kind = kind
        self.decay = decay

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Add the weights after a step to the average."""
        for parameter in self._parameters():
            state = self.state[parameter]
            if not state:
                state["other"] = parameter.detach().clone()
                state["step"] = torch.ones(())  # by this name PyTorch leaves it on the processor
                continue
            state["step"] += 1
            state["other"].lerp_(parameter.detach(), self._share(int(state["step"])))

    def _share(self, count: int) -> float:
        """Return the share of the newest weights in the average after so many steps."""
        if self.kind == "last":
            return (LATE + 1) / (count + LATE)
        return 1 - min(self.decay, (1 + count) / (10 + count))

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap the parameters with the average; before the first step there is none, and nothing changes."""
        for parameter in self._parameters():
            other: Tensor | None = self.state[parameter].get("other")
            if other is not None:
                held = parameter.detach().clone()
                parameter.copy_(other)
                other.copy_(held)

    @contextmanager
    def exchanged(self) -> Iterator[None]:
        """Inside, the parameters are the average."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def _parameters(self) -> Iterator[nn.Parameter]:
        for group in self.param_groups:
            yield from group["params"]
