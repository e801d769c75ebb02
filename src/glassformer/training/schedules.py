"""Learning-rate schedules: pure functions that map the progress of a run to a factor on the peak learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from glassformer.base.config import TrainConfig

LONGEST_WARMUP = 0.1
"""Maximum length of the warm-up as a fraction of a run of known length, so that a short run reaches its peak learning
rate. The schedule "noam" does not use it."""


def rate_factor(config: TrainConfig, step: int, progress: float, plateau: float = 1.0) -> float:
    """Return the factor on the peak learning rate for one step.

    Args:
        config: settings of the schedule.
        step: number of optimizer steps before this one.
        progress: fraction of the run that is done, 0 to 1, by steps or by time, whichever is larger; 0 if not known.
        plateau: current factor of `Plateau`; used only by the schedule "plateau".
    """
    if config.schedule == "noam":  # Vaswani et al. 2017, equation 3, scaled so that its maximum is 1
        s = step + 1
        return min(s / config.warmup, math.sqrt(config.warmup / s))
    warmup_factor = max((step + 1) / max(1, config.warmup), progress / LONGEST_WARMUP)
    return min(1.0, warmup_factor) * _decay_factor(config, progress, plateau)


def _decay_factor(config: TrainConfig, progress: float, plateau: float) -> float:
    remaining = 1 - min(1.0, progress)
    final_rate = config.final_rate
    match config.schedule:
        case "linear":
            return final_rate + (1 - final_rate) * remaining
        case "cosine":  # Loshchilov and Hutter 2017, one period
            return final_rate + (1 - final_rate) * 0.5 * (1 + math.cos(math.pi * (1 - remaining)))
        case "wsd":  # warm-up, stable, decay: Hu et al. 2024
            return final_rate + (1 - final_rate) * min(1.0, remaining / config.decay_share)
        case "plateau":
            return plateau
        case _:
            return 1.0


@dataclass(frozen=True)
class Plateau:
    """State of the schedule "plateau", which lowers the learning rate when the validation loss stops falling.

    It behaves like torch's ReduceLROnPlateau with threshold 0.

    Attributes:
        factor: current factor on the peak learning rate.
        best: lowest validation loss so far; None before the first evaluation.
        waited: number of evaluations since the best one or since the factor was lowered, whichever is later.
    """

    factor: float = 1.0
    best: float | None = None
    waited: int = 0

    def after(self, loss: float, config: TrainConfig) -> Plateau:
        """Return the state after another evaluation."""
        if self.best is None or loss < self.best:
            return replace(self, best=loss, waited=0)
        if self.waited < config.plateau_patience:
            return replace(self, waited=self.waited + 1)
        return replace(self, factor=self.factor * config.plateau_factor, waited=0)
