"""The choice of the next token: its probability after each filter, and the race that drew it.

Every figure is what `generation.sampling` gives for the same logits, asked with one more filter at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.generation.sampling import exponential_noise, probabilities, sample_token

FILTERS = {"repetition_penalty": 1.0, "temperature": 1.0, "top_k": None, "top_p": None, "min_p": None}
"""Settings that act on the probabilities, in the order in which they act, with the value that changes nothing."""


@dataclass(frozen=True)
class SamplingStage:
    """The distribution over all tokens after one filter, and all before it.

    Attributes:
        filter: the name of the setting; None: the model's own, which no filter has touched.
        setting: its value, where it has one.
        shares: (V) float64, sums to 1.
    """

    filter: str | None
    setting: float | None
    shares: Tensor

    @property
    def left(self) -> int:
        """Return how many tokens can still be drawn."""
        return int((self.shares > 0).sum())


@dataclass(frozen=True)
class Runner:
    """A token in the race.

    Attributes:
        token: its id.
        probability: its speed: its share after all filters.
        number: how far it has to run: an exponentially distributed random number, mean 1.
        arrival: number / probability, the time that it takes; the first to arrive is drawn.
    """

    token: int
    probability: float
    number: float
    arrival: float


@dataclass(frozen=True)
class Draw:
    """Choice of one token from its logits, with the steps that lead to it.

    Attributes:
        how: "drawn" by the race; "likeliest" where nothing is random; "beam search" looks further than one token.
        token: what is chosen; of a classifier a class.
        stages: the model's own distribution, then one for each filter that acts.
        seed, step: what the random numbers follow from: `step` counts the tokens of the text from 1.
        runners: of a race the tokens by arrival, the winner first; else empty.
    """

    how: Literal["drawn", "likeliest", "beam search"]
    token: int
    stages: tuple[SamplingStage, ...]
    seed: int
    step: int
    runners: tuple[Runner, ...]

    def runner(self, token: int) -> Runner | None:
        """This token in the race; None where it is not in it."""
        return next((each for each in self.runners if each.token == token), None)


def explain_draw(logits: Tensor, settings: SampleConfig, previous: Sequence[int], step: int) -> Draw:
    """Explain what `generation.decoding` does with these logits.

    Args:
        logits: (V) of one position, before the settings act.
        settings: how the token is drawn; their seed is that of the row.
        previous: ids that the repetition penalty counts.
        step: which token of the text this is, from 1: each one before it has used V random numbers.
    """
    stages = _stages(logits, settings, previous)
    shares = stages[-1].shares  # (V)
    if settings.temperature == 0:
        return Draw("likeliest", int(shares.argmax()), stages, settings.seed, step, ())
    noise = exponential_noise(len(shares), torch.Generator().manual_seed(settings.seed))
    for _ in range(step):
        times = next(noise)  # (V)
    order = (shares / times).argsort(descending=True, stable=True)[: stages[-1].left].tolist()
    arrivals = times / shares  # (V)
    runners = tuple(Runner(i, float(shares[i]), float(times[i]), float(arrivals[i])) for i in order)
    return Draw("drawn", sample_token(shares, times), stages, settings.seed, step, runners)


def model_stage(logits: Tensor) -> SamplingStage:
    """The model's own distribution over logits (V)."""
    return SamplingStage(None, None, probabilities(logits, SampleConfig(temperature=1.0)))


def _stages(logits: Tensor, settings: SampleConfig, previous: Sequence[int]) -> tuple[SamplingStage, ...]:
    """Return the distributions after zero, one, two, ... active filters; the token is sampled from the last."""
    now = settings.replace(**FILTERS)
    stages = [model_stage(logits)]
    for name, neutral in FILTERS.items():
        value = getattr(settings, name)
        if now.temperature == 0:  # one token has everything: nothing is left to filter
            break
        if value != neutral:
            now = now.replace(**{name: value})
            stages.append(SamplingStage(name, value, probabilities(logits, now, previous)))
    return tuple(stages)
