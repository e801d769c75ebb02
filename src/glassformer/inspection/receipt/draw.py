"""Choice of the next token: its probability after each filter, and the exponential race that samples it.

`generation.sampling` computes all values from the same logits, with one more filter at a time.
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
"""Settings that change the probabilities, in order of application, with their neutral values."""


@dataclass(frozen=True)
class SamplingStage:
    """Distribution over all tokens after a filter and all filters before it.

    Attributes:
        filter: name of the setting, or "special tokens left out" for a [MASK]; None for the model's distribution
            without filters.
        setting: value of the setting; None if `filter` is not a setting.
        probabilities: (V) float64, the probability of each token.
    """

    filter: str | None
    setting: float | None
    probabilities: Tensor

    @property
    def left(self) -> int:
        """Return the number of tokens that can still be sampled."""
        return int((self.probabilities > 0).sum())


@dataclass(frozen=True)
class RaceEntry:
    """Token that takes part in the exponential race.

    Attributes:
        token: id of the token.
        probability: probability after all filters.
        number: exponentially distributed random number with mean 1.
        arrival: waiting time, number / probability; the token with the shortest time is sampled.
    """

    token: int
    probability: float
    number: float
    arrival: float


@dataclass(frozen=True)
class Draw:
    """Choice of one token from the logits, with the steps that lead to this choice.

    Attributes:
        how: "drawn" (sampled by the exponential race), "likeliest" (greedy), or "beam search".
        token: id of the chosen token, or class of a classifier.
        stages: the model's distribution, then the distribution after each active filter.
        seed, step: seed and position that determine the random numbers; `step` counts generated tokens from 1.
        runners: all tokens of the race by waiting time, the sampled token first; empty if nothing was sampled.
    """

    how: Literal["drawn", "likeliest", "beam search"]
    token: int
    stages: tuple[SamplingStage, ...]
    seed: int
    step: int
    runners: tuple[RaceEntry, ...]

    def runner(self, token: int) -> RaceEntry | None:
        """Return the race entry of a token, or None if the token does not take part."""
        return next((each for each in self.runners if each.token == token), None)


def explain_draw(logits: Tensor, settings: SampleConfig, previous: Sequence[int], step: int) -> Draw:
    """Reproduce the choice that `generation.decoding` makes from these logits, step by step.

    Args:
        logits: logits of one position, (V), before any filter.
        settings: sampling settings, with the seed of the row.
        previous: ids that the repetition penalty applies to.
        step: number of the generated token, from 1; each earlier token has used V random numbers.
    """
    stages = _stages(logits, settings, previous)
    token_probabilities = stages[-1].probabilities  # (V)
    if settings.temperature == 0:
        return Draw("likeliest", int(token_probabilities.argmax()), stages, settings.seed, step, ())
    noise = exponential_noise(len(token_probabilities), torch.Generator().manual_seed(settings.seed))
    for _ in range(step):
        random_numbers = next(noise)  # (V)
    order = (token_probabilities / random_numbers).argsort(descending=True, stable=True)[: stages[-1].left].tolist()
    arrivals = random_numbers / token_probabilities  # (V)
    runners = tuple(
        RaceEntry(i, float(token_probabilities[i]), float(random_numbers[i]), float(arrivals[i])) for i in order
    )
    return Draw("drawn", sample_token(token_probabilities, random_numbers), stages, settings.seed, step, runners)


def model_stage(logits: Tensor) -> SamplingStage:
    """Return the model's distribution for logits (V), without filters."""
    return SamplingStage(None, None, probabilities(logits, SampleConfig(temperature=1.0)))


def _stages(logits: Tensor, settings: SampleConfig, previous: Sequence[int]) -> tuple[SamplingStage, ...]:
    """Return the distributions after zero, one, two, ... active filters; the token is sampled from the last one."""
    active_settings = settings.replace(**FILTERS)
    stages = [model_stage(logits)]
    for name, neutral in FILTERS.items():
        value = getattr(settings, name)
        if active_settings.temperature == 0:  # one token has probability 1, so filters have no effect
            break
        if value != neutral:
            active_settings = active_settings.replace(**{name: value})
            stages.append(SamplingStage(name, value, probabilities(logits, active_settings, previous)))
    return tuple(stages)
