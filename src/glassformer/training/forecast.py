"""Forecast the validation loss that a language model ends with, as an interval, before it is trained.

The loss lies between that of token frequencies, U, and a floor below that of the text's 5-gram, G: F = G - k (U - G),
or 0 if that is negative. How much of the way is left, s = (loss - F) / (U - F), was measured in short runs of many
sizes on many texts; ln s is close to a sum of logarithms of what is known before. The interval is as wide as it must be
to have held 85 % of the runs on texts that the fit did not see. `benchmarks/loss_band.py` makes the runs and the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from glassformer.corpora import CORPORA
from glassformer.training.plan import RunPlan

BELOW = 0.5
"""k: how far below the 5-gram the floor is, as a share of what the 5-gram gains on token frequencies."""
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
"""Weight of each feature in ln s."""
HALF_WIDTH = 0.199
"""Half the width of the interval of ln s."""
LARGEST = 2.94e12
"""Arithmetic, 6 x parameters x tokens, of the largest run that the fit saw."""
BEYOND = 10.0
"""How many times as large a run may be for the formula to be believed."""


class Predictor(Protocol):
    """A simple predictor, as far as the forecast needs it."""

    @property
    def name(self) -> str:
        """Name of the predictor, such as uniform, unigram or 5-gram."""

    @property
    def loss(self) -> float | None:
        """Loss in nats per token; None where the predictor has none."""


@dataclass(frozen=True)
class RunFacts:
    """Known facts of a run before it begins.

    Attributes:
        unigram, ngram: nats per token that token frequencies and the 5-gram of the text lose on its validation part.
        parameters: of the model.
        steps: that the run takes.
        tokens: that it reads in all.
        text_tokens: of the training part.
        vocabulary: V.
        muon: whether hidden matrices are trained by Muon.
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
        """Return the facts as JSON."""
        return asdict(self)

    def features(self) -> dict[str, float]:
        """Return the features whose weighted sum is ln s."""
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
        """Floor F of the loss, in nats per token."""
        return max(0.0, self.ngram - BELOW * (self.unigram - self.ngram))

    def loss_at(self, left: float) -> float:
        """The loss where ln s is `left`."""
        return self.floor + (self.unigram - self.floor) * math.exp(left)


@dataclass(frozen=True)
class Band:
    """The interval in which the validation loss will probably end: nats per token, of the whole validation part."""

    low: float
    middle: float
    high: float

    def facts(self) -> dict[str, float]:
        """Return the interval as JSON."""
        return asdict(self)


def loss_band(plan: RunPlan, rungs: Sequence[Predictor]) -> Band | None:
    """The interval for a planned run; None where the formula has nothing to say.

    That is so for all tasks but lm, for generated text, where the number of steps is not known, where the 5-gram gains
    nothing, and for runs that are more than `BEYOND` times larger than any that the fit saw.

    Args:
        plan: the run.
        rungs: the simple predictors of its text, as `evaluation.ladder` measures them.
    """
    found = known(plan, rungs)
    if found is None or 6 * found.parameters * found.tokens > BEYOND * LARGEST:
        return None
    left = sum(WEIGHTS[name] * value for name, value in found.features().items())
    ends = (found.loss_at(left + change) for change in (-HALF_WIDTH, 0.0, HALF_WIDTH))
    low, middle, high = (min(loss, math.log(found.vocabulary)) for loss in ends)  # what no step at all would give
    return Band(low, middle, high)


def known(plan: RunPlan, rungs: Sequence[Predictor]) -> RunFacts | None:
    """Return the facts that the formula needs of a run; None where one of them is not known."""
    if plan.config.train.task != "lm" or plan.config.data.source in CORPORA:
        return None
    losses = {rung.name: rung.loss for rung in rungs}
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
