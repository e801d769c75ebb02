"""Forecast the final validation loss of a language model before training, as an interval.

The formula measures the loss on a scale from the unigram loss U of the text down to a floor F below its 5-gram loss G:
F = G - k (U - G), at least 0. The remaining fraction s = (loss - F) / (U - F) was measured in short runs of many sizes
on several texts; ln s is close to a linear function of logarithms of quantities known before training, and of whether
Muon is used. `HALF_WIDTH` is chosen so that the interval contains the loss of 85 % of the runs in cross-validation,
where each run is predicted from a fit to the runs on all other texts. `benchmarks/loss_band.py` makes the runs and the
fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from glassformer.corpora import CORPORA
from glassformer.training.plan import RunPlan

BELOW = 0.5
"""k: distance of F below the 5-gram loss, as a fraction of the difference between unigram and 5-gram loss."""
WEIGHTS = {
    "one": -0.7381,
    "steps": -0.1531,
    "tokens": -0.0558,
    "parameters": -0.1058,
    "text": 0.0343,
    "vocabulary": 0.0484,
    "ngram": 0.0361,
    "muon": -0.2047,
}
"""Coefficient of each feature in ln s."""
HALF_WIDTH = 0.199
"""Half the width of the interval of ln s."""
LARGEST = 2.94e12
"""FLOPs (6 x parameters x tokens) of the largest run used in the fit."""
BEYOND = 10.0
"""Maximum ratio of the FLOPs of a forecast run to `LARGEST`."""


class Predictor(Protocol):
    """Interface of a simple predictor: the attributes that the forecast needs."""

    @property
    def name(self) -> str:
        """Name of the predictor, such as uniform, unigram or 5-gram."""

    @property
    def loss(self) -> float | None:
        """Loss in nats per token; None if the predictor has none."""


@dataclass(frozen=True)
class RunFacts:
    """Quantities of a run that are known before training.

    Attributes:
        unigram, ngram: losses of the unigram and the 5-gram model on the validation split, in nats per token.
        parameters: number of model parameters.
        steps: number of training steps.
        tokens: number of tokens read in all steps.
        text_tokens: number of tokens in the training split.
        vocabulary: vocabulary size V.
        muon: whether Muon trains the hidden matrices.
    """

    unigram: float
    ngram: float
    parameters: int
    steps: int
    tokens: float
    text_tokens: int
    vocabulary: int
    muon: bool

    def facts(self) -> dict[str, float]:
        """Return the quantities as JSON values."""
        return asdict(self)

    def features(self) -> dict[str, float]:
        """Return the features whose weighted sum (`WEIGHTS`) predicts ln s."""
        steps = math.log(self.steps / 1000)
        parameters = math.log(self.parameters / 1e6)
        return {
            "one": 1.0,
            "steps": steps,
            "tokens": math.log(self.tokens / 1e6),
            "parameters": parameters,
            "text": math.log(self.text_tokens / 1e6),
            "vocabulary": math.log(self.vocabulary / 1000),
            "ngram": math.log(self.unigram / self.ngram),
            "muon": float(self.muon),
        }

    @property
    def floor(self) -> float:
        """Floor F of the scale, in nats per token; the formula gives no loss below it."""
        return max(0.0, self.ngram - BELOW * (self.unigram - self.ngram))

    def loss_at(self, log_fraction: float) -> float:
        """Return the loss for ln s = `log_fraction`, in nats per token."""
        return self.floor + (self.unigram - self.floor) * math.exp(log_fraction)


@dataclass(frozen=True)
class Band:
    """Forecast interval of the final loss on the whole validation split, in nats per token."""

    low: float
    middle: float
    high: float

    def facts(self) -> dict[str, float]:
        """Return the interval as JSON values."""
        return asdict(self)


def loss_band(plan: RunPlan, predictors: Sequence[Predictor]) -> Band | None:
    """Return the forecast interval of a planned run; None if the formula does not apply.

    The formula applies to task lm on texts that are not generated, if the number of steps and both losses are known,
    the 5-gram loss is below the unigram loss, and the run has at most `BEYOND` times as many FLOPs as the largest run
    of the fit. The forecast loss is at most ln V, the loss before training.

    Args:
        plan: plan of the run.
        predictors: simple predictors of the run's text, from `evaluation.simple_predictors`.
    """
    inputs = forecast_inputs(plan, predictors)
    if inputs is None or 6 * inputs.parameters * inputs.tokens > BEYOND * LARGEST:
        return None
    log_fraction = sum(WEIGHTS[name] * value for name, value in inputs.features().items())
    losses = (inputs.loss_at(log_fraction + offset) for offset in (-HALF_WIDTH, 0.0, HALF_WIDTH))
    low, middle, high = (min(loss, math.log(inputs.vocabulary)) for loss in losses)  # ln V is the loss before training
    return Band(low, middle, high)


def forecast_inputs(plan: RunPlan, predictors: Sequence[Predictor]) -> RunFacts | None:
    """Return the quantities that the formula needs; None if the formula does not apply or a quantity is not known."""
    if plan.config.train.task != "lm" or plan.config.data.source in CORPORA:
        return None
    losses = {predictor.name: predictor.loss for predictor in predictors}
    unigram = losses.get("unigram")
    ngram = losses.get("5-gram")
    if plan.steps is None or unigram is None or ngram is None or ngram >= unigram:
        return None
    return RunFacts(
        unigram=unigram,
        ngram=ngram,
        parameters=plan.parameters,
        steps=plan.steps,
        tokens=plan.steps * plan.tokens_per_step,
        text_tokens=plan.training_tokens,
        vocabulary=plan.vocab_size,
        muon=plan.config.train.optimizer == "muon",
    )
