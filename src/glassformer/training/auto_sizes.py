"""Sizes that a recipe leaves open, chosen by measuring: how fast a machine trains decides what fits into the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.base.config import EXAMPLES, Config
from glassformer.model.device import choose_device
from glassformer.model.precision import precision_in_words, settled
from glassformer.runs.run_text import prepare_for
from glassformer.runs.text_location import token_cache
from glassformer.text.prepare import Prepared
from glassformer.training.plan import plan_run
from glassformer.training.setup import sizes
from glassformer.training.sizing import FIRST_SPEED, SIZED, SizingCase, choose_sizes, choose_vocabulary
from glassformer.training.step_measurement import Probe, probe

ROUNDS = 4
"""Probes at most: the speed of a shape decides whether another shape is better, which has a speed of its own."""
MINUTES = 10.0
"""For which sizes are chosen where no minutes are given."""
TRAINING = 0.85
"""Share of the time that is left in which steps are taken: the rest is for evaluations and what follows training."""
LONGEST_SHARE = 1 / 5
"""Share of the minutes after which no other shape is measured."""
HELD = 0.999
"""Share of the examples that shall fit the context whole."""
PRECISION = "train.precision"
HELD_OUT = 1000
"""Examples that are enough to measure on; what more is held out is missed in training."""
VOCABULARY = "tokenizer.vocab_size"
VALIDATION = "data.validation_fraction"
MEASURED = ("model.layers", "model.width", "model.context", "train.batch", "train.batch_tokens")
"""Settings that a speed belongs to: the other settings follow from these and from it."""


@dataclass(frozen=True)
class Sized:
    """Settings that are complete.

    Attributes:
        config: all settings.
        data: the prepared text.
        probe: of these settings; steps, and when is evaluated and saved, were chosen with its speed.
        chosen: settings that were chosen, by name.
        why: the reasons, in sentences.
    """

    config: Config
    data: Prepared
    probe: Probe
    chosen: dict[str, Any]
    why: tuple[str, ...]


def size_run(
    config: Config,
    said: Collection[str],
    folder: Path,
    seconds: float,
    note: Callable[[str], None],
    spent: Callable[[], float] = lambda: 0.0,
) -> Sized:
    """Choose the open settings, measure them, and choose again with the measured speed, until nothing changes.

    Args:
        config: all settings, those that are open at any value.
        said: names of the settings that stay as they are.
        folder: of the run to be.
        seconds: how long each probe takes steps.
        note: is told what happens.
        spent: gives the wall seconds of the run so far, of which measuring takes a share of the minutes at most.

    Raises:
        GlassError: the text cannot be read, or a probe failed.
    """
    device = choose_device(config.train.device)
    is_open = config.train.precision == "auto"
    config = settled(config)
    settled_first: dict[str, Any] = {PRECISION: config.train.precision} if is_open else {}
    data = prepare_for(config, token_cache(folder), note)
    of_data = {name: value for name, value in _of_data(config, data).items() if name not in said}
    if of_data:
        settled_first |= of_data
        config = _with(config, of_data)
        data = prepare_for(config, token_cache(folder), note)
    case = _case(config, data, spent())
    latest = LONGEST_SHARE * 60 * (config.train.minutes or MINUTES)
    kept = {name: _value(config, name) for name in SIZED if name in said}
    choice = choose_sizes(case, FIRST_SPEED[device.type], kept)
    for turn in range(ROUNDS):
        shape = choice.shape
        candidate = _with(config, choice.settings)
        batch = candidate.train.batch
        step = f"{batch} rows of up to {shape.context} tokens"
        if candidate.train.batch_tokens is not None:
            step = f"{candidate.train.batch_tokens} tokens, {shape.context} in a row at most"
        note(f"measuring {shape.layers} layers, {shape.width} wide, a step of {step}")
        found = probe(candidate, data.folder, seconds)
        tokens = plan_run(candidate, data, None).tokens_per_step
        speed = shape.arithmetic(case) * tokens / found.seconds_per_step
        measured = {name: choice.settings[name] for name in MEASURED if name in choice.settings}
        again = choose_sizes(case, speed, kept)
        if measured.items() <= again.settings.items() or turn == ROUNDS - 1 or spent() > latest:
            break
        choice = again
    rest = choose_sizes(case, speed, {**kept, **measured})  # such as the steps, of the very batch that was measured
    chosen = {**measured, **rest.settings}
    why = (*rest.why, *([precision_in_words(config)] if is_open else []))
    return Sized(_with(config, chosen), data, found, chosen | settled_first, why)


def _of_data(config: Config, data: Prepared) -> dict[str, Any]:
    """Settings with which examples are prepared anew: a vocabulary and a held-out share that suit their number."""
    if data.kind.running_text:
        return {}
    found: dict[str, Any] = {}
    vocabulary = choose_vocabulary(data.train.bytes, config.train.task)
    if vocabulary not in (None, config.tokenizer.vocab_size):
        found[VOCABULARY] = vocabulary
    examples = len(data.train) + len(data.validation)
    if config.data.validation is None and config.data.validation_fraction * examples > HELD_OUT:
        found[VALIDATION] = float(f"{HELD_OUT / examples:.3g}")
    return found


def _longest(data: Prepared) -> int | None:
    """Tokens that hold `HELD` of the examples whole, with what stands around them; None of running text."""
    if data.kind.running_text:
        return None
    lengths = data.train.lengths().max(axis=1)  # (records,)
    return math.ceil(np.quantile(lengths, HELD)) + data.train.around


def _case(config: Config, data: Prepared, spent: float = 0.0) -> SizingCase:
    """The case of a run of which so many seconds have passed: a share of the rest is for training."""
    plan = plan_run(config, data, None)
    left = 60 * (config.train.minutes or MINUTES) - spent
    rows = config.train.task in EXAMPLES or config.data.windows == "documents"
    return SizingCase(
        family=config.model.family,
        optimizer=config.train.optimizer,
        text_tokens=plan.training_tokens,
        vocabulary=sizes(config, data)[0],
        row_tokens=plan.tokens_per_step / plan.rows_per_step if rows else None,
        seconds=max(1.0, TRAINING * left),
        task=config.train.task,
        longest=_longest(data),
        like_length=config.train.batch_tokens is not None,
        predicted=config.train.mask_share if config.train.task == "masked" else 1.0,
    )


def _value(config: Config, name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(getattr(config, section), field)


def _with(config: Config, settings: dict[str, Any]) -> Config:
    """A copy with settings by name, validated."""
    values = config.model_dump()
    for name, value in settings.items():
        section, _, field = name.partition(".")
        values[section][field] = value
    return Config.from_dict(values)
