"""Choose the sizes that a recipe leaves unset, from the measured training speed of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.base.config import EXAMPLES, Config
from glassformer.base.wording import counted
from glassformer.model.device import choose_device
from glassformer.model.precision import describe_precision, resolve_precision
from glassformer.runs.run_text import prepare_run_text
from glassformer.runs.text_location import token_cache
from glassformer.text.locating import is_encoded, is_stream, located
from glassformer.text.prepare import Prepared, corpus_tokenizers
from glassformer.training.plan import plan_run
from glassformer.training.setup import vocabulary_sizes_and_classes
from glassformer.training.sizing import (
    FIRST_SPEED,
    SIZED,
    SizingCase,
    choose_sizes,
    choose_vocabulary,
    suits_characters,
)
from glassformer.training.step_measurement import Probe, probe

ROUNDS = 4
"""Maximum number of measured shapes. The speed measured for one shape may make another shape the best choice, which is
then measured too."""
MINUTES = 10.0
"""Time limit assumed if `train.minutes` is not set."""
TRAINING = 0.85
"""Fraction of the remaining time planned for training steps; evaluations and the work after training take the rest."""
LONGEST_SHARE = 1 / 5
"""Fraction of the time limit after which no further shape is measured, unless the measured one is too large."""
SMALLER_SHARE = 1 / 3
"""Fraction of the time limit after which no smaller shape is measured. In runs of a minute, training with a shape that
is too large costs more than the seconds of another measurement."""
COVERED_FRACTION = 0.999
"""Fraction of the examples that should fit into the context."""
PRECISION = "train.precision"
HELD_OUT = 1000
"""Maximum number of validation examples split from the source; more would only shrink the training split."""
KIND = "tokenizer.kind"
VOCABULARY = "tokenizer.vocab_size"
SIZED_KINDS = ("bpe", "wordpiece", "unigram")
"""Kinds of tokenizers whose vocabulary size is chosen. The others have a token for each character, byte or word."""
ALWAYS_FITTING = "bpe"
"""Kind of tokenizer that any vocabulary size above 256 suits; others need all characters of the text, and their
vocabulary is only enlarged."""
SPECIAL_TOKENS = 2
"""Number of special tokens of a tokenizer of characters: unknown and end."""
VALIDATION = "data.validation_fraction"
SOURCES = ("data.source", "data.target", "data.validation", "data.validation_target")
MEASURED = ("model.layers", "model.width", "model.context", "train.batch", "train.batch_tokens")
"""Settings that determine the training speed; the other settings are chosen from these and the measured speed."""


@dataclass(frozen=True)
class Sized:
    """Settings of a run after its sizes were chosen.

    Attributes:
        config: all settings.
        data: the prepared text.
        probe: measured time and memory with the chosen values of `MEASURED`; the other sizes were chosen afterwards,
            from the measured speed.
        chosen: name -> value of each chosen setting.
        why: reasons for the choices, one sentence each.
    """

    config: Config
    data: Prepared
    probe: Probe
    chosen: dict[str, Any]
    why: tuple[str, ...]


def size_run(
    config: Config,
    given_names: Collection[str],
    folder: Path,
    seconds: float,
    note: Callable[[str], None],
    spent: Callable[[], float] = lambda: 0.0,
) -> Sized:
    """Choose the sizes of a run, measure the training speed with them, and choose again until the choice is stable.

    There are at most `ROUNDS` measurements; only the first may begin after `LONGEST_SHARE` of the time limit, or after
    `SMALLER_SHARE` if the measured shape is too large.

    Args:
        config: all settings; settings that are chosen may have any value.
        given_names: names of the settings that keep their values.
        folder: folder of the new run.
        seconds: seconds of training in each measurement; see `step_measurement.probe`.
        note: function that prints a note.
        spent: function that returns the wall-clock seconds of the run so far.

    Raises:
        GlassError: the text cannot be read, or a measurement failed.
    """
    streams = {}
    with ExitStack() as stack:
        for name in SOURCES:
            source = _setting_value(config, name)
            if source is not None and is_stream(source):  # it is read again for another tokenizer
                location = stack.enter_context(located(source, token_cache(folder)))
                streams[name] = source
                config = _with_settings(config, {name: str(location.files[0][0])})
        sized = _size(config, given_names, folder, seconds, note, spent)
    return replace(sized, config=_with_settings(sized.config, streams))


def _size(
    config: Config,
    given_names: Collection[str],
    folder: Path,
    seconds: float,
    note: Callable[[str], None],
    spent: Callable[[], float],
) -> Sized:
    """Choose the sizes as `size_run` does, from sources that can be read again."""
    device = choose_device(config.train.device)
    is_open = config.train.precision == "auto"
    config = resolve_precision(config)
    preliminary_settings: dict[str, Any] = {PRECISION: config.train.precision} if is_open else {}
    estimate = {} if VOCABULARY in given_names else _larger_vocabulary(config, folder)
    data = prepare_run_text(_with_settings(config, estimate), token_cache(folder), note)
    changes = (
        _tokenizer_to_change(config, data, given_names) if data.kind.running_text else _sizes_to_change(config, data)
    )
    data_settings = {name: value for name, value in changes.items() if name not in given_names}
    preliminary_settings |= data_settings
    config = _with_settings(config, data_settings)
    if data_settings != estimate:
        data = prepare_run_text(config, token_cache(folder), note)
    case = _sizing_case(config, data, spent())
    time_limit = 60 * (config.train.minutes or MINUTES)
    given_settings = {name: _setting_value(config, name) for name in SIZED if name in given_names}
    first_speed = FIRST_SPEED[device.type, config.train.precision]
    if device.type == "cpu":
        first_speed *= config.train.threads or torch.get_num_threads()
    choice = choose_sizes(case, first_speed, given_settings)
    for attempt in range(ROUNDS):
        shape = choice.shape
        candidate = _with_settings(config, choice.settings)
        batch = candidate.train.batch
        step_description = counted(batch, f"rows of up to {shape.context} tokens")
        if candidate.train.batch_tokens is not None:
            step_description = f"rows of up to {shape.context} tokens, at most {candidate.train.batch_tokens:,} tokens"
        note(f"measuring {counted(shape.layers, 'layers')} of width {shape.width}, with {step_description} per step")
        probe_result = probe(candidate, data.folder, seconds)
        tokens = plan_run(candidate, data, None).tokens_per_step
        speed = shape.training_flops_per_token(case) * tokens / probe_result.seconds_per_step
        measured_settings = {name: choice.settings[name] for name in MEASURED if name in choice.settings}
        case = replace(case, seconds=_training_seconds(config, spent()))  # the measurement took time as well
        next_choice = choose_sizes(case, speed, given_settings)
        is_stable = measured_settings.items() <= next_choice.settings.items()
        is_too_large = next_choice.shape.weights(case.family) < shape.weights(case.family)
        share = SMALLER_SHARE if is_too_large else LONGEST_SHARE
        if is_stable or attempt == ROUNDS - 1 or spent() > share * time_limit:
            break
        choice = next_choice
    # Choose the other settings, such as the steps, for the measured batch.
    final_choice = choose_sizes(case, speed, {**given_settings, **measured_settings})
    chosen = {**measured_settings, **final_choice.settings}
    why = (*final_choice.why, *([describe_precision(config)] if is_open else []))
    return Sized(_with_settings(config, chosen), data, probe_result, chosen | preliminary_settings, why)


def _larger_vocabulary(config: Config, folder: Path) -> dict[str, Any]:
    """Return a larger vocabulary size if the sizes of the files suggest it, so that a large text is tokenized once.

    It is only an estimate, because files may contain more than their text.
    """
    source = config.data.source
    if config.train.task in EXAMPLES or is_encoded(Path(source).expanduser()):
        return {}
    if config.tokenizer.kind != ALWAYS_FITTING:  # other kinds refuse a text that proves too small for it
        return {}
    with located(source, token_cache(folder)) as location:
        size = sum(path.stat().st_size for path, _ in location.files)
    if suits_characters(size, config.train.task):
        return {}
    training_share = 1.0 if config.data.validation is not None else 1 - config.data.validation_fraction
    vocabulary = choose_vocabulary(round(training_share * size), config.train.task)
    return {} if vocabulary is None or vocabulary <= config.tokenizer.vocab_size else {VOCABULARY: vocabulary}


def _tokenizer_to_change(config: Config, data: Prepared, given_names: Collection[str]) -> dict[str, Any]:
    """Return another kind or vocabulary size of the tokenizer if the size of running text requires it."""
    source = config.data.source
    if is_encoded(Path(source).expanduser()) or corpus_tokenizers(source):  # the text has its own tokenizer
        return {}
    task = config.train.task
    is_open = KIND not in given_names and VOCABULARY not in given_names
    if is_open and suits_characters(data.train.bytes, task) and _has_all_characters(config, data):
        return {KIND: "characters"}
    return _vocabulary_to_change(config, data)


def _vocabulary_to_change(config: Config, data: Prepared) -> dict[str, Any]:
    """Return another vocabulary size if the size of the text requires it and the kind of tokenizer allows it."""
    current = config.tokenizer.vocab_size
    vocabulary = choose_vocabulary(data.train.bytes, config.train.task)
    if vocabulary in (None, current) or config.tokenizer.kind not in SIZED_KINDS:
        return {}
    if vocabulary < current and config.tokenizer.kind != ALWAYS_FITTING:
        return {}
    return {VOCABULARY: vocabulary}


def _has_all_characters(config: Config, data: Prepared) -> bool:
    """Return whether a vocabulary of the characters of the training split has no unknown token in either split."""
    known, held_out = (set().union(*split.source.iter_text(data.tokenizer)) for split in (data.train, data.validation))
    return held_out <= known and len(known) <= config.tokenizer.vocab_size - SPECIAL_TOKENS


def _sizes_to_change(config: Config, data: Prepared) -> dict[str, Any]:
    """Return a new vocabulary size and validation fraction if the number of examples requires other values."""
    settings = _vocabulary_to_change(config, data)
    examples = len(data.train) + len(data.validation)
    if config.data.validation is None and config.data.validation_fraction * examples > HELD_OUT:
        settings[VALIDATION] = float(f"{HELD_OUT / examples:.3g}")
    return settings


def _fitting_context(data: Prepared) -> int | None:
    """Return the context that fits `COVERED_FRACTION` of the examples with special tokens; None for running text."""
    if data.kind.running_text:
        return None
    lengths = data.train.lengths().max(axis=1)  # (records,)
    return math.ceil(np.quantile(lengths, COVERED_FRACTION)) + data.train.frame_length


def _training_seconds(config: Config, elapsed: float) -> float:
    """Return the seconds planned for training steps in a run that has already taken `elapsed` seconds."""
    return max(1.0, TRAINING * (60 * (config.train.minutes or MINUTES) - elapsed))


def _sizing_case(config: Config, data: Prepared, elapsed: float = 0.0) -> SizingCase:
    """Return the input of `choose_sizes` for a run that has already taken `elapsed` seconds."""
    row_tokens = None
    if config.train.task in EXAMPLES or config.data.windows != "stream":
        plan = plan_run(config, data, None)
        row_tokens = plan.tokens_per_step / plan.rows_per_step
    return SizingCase(
        family=config.model.family,
        optimizer=config.train.optimizer,
        text_tokens=sum(map(len, data.train.tokens.values())),
        vocabulary=vocabulary_sizes_and_classes(config, data)[0],
        row_tokens=row_tokens,
        seconds=_training_seconds(config, elapsed),
        task=config.train.task,
        longest=_fitting_context(data),
        like_length=config.train.batch_tokens is not None,
        predicted=config.train.mask_share if config.train.task == "masked" else 1.0,
        kv_heads=config.model.kv_heads,
    )


def _setting_value(config: Config, name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(getattr(config, section), field)


def _with_settings(config: Config, settings: dict[str, Any]) -> Config:
    """Return a validated copy of `config` with new values from `settings` (name -> value)."""
    values = config.model_dump()
    for name, value in settings.items():
        section, _, field = name.partition(".")
        values[section][field] = value
    return Config.from_dict(values)
