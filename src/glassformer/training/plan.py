"""Plan a run before it starts: size, steps, epochs, time, memory, disk space, and warnings."""

from __future__ import annotations

import math
import shutil
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.base.config import Config
from glassformer.model.count import Component, count_model
from glassformer.tasks.make import make_task
from glassformer.text.batches import Batch
from glassformer.text.prepare import Prepared
from glassformer.text.record_store import RecordStore
from glassformer.training.budget import EVALUATIONS, FINAL, ONE_EVALUATION, REST_SECONDS, REST_SHARE
from glassformer.training.memory import checkpoint_bytes
from glassformer.training.setup import vocabulary_sizes_and_classes
from glassformer.training.step_measurement import Probe

SAMPLED_STEPS = 16
"""Number of steps over which the size of a step is averaged."""
CHECKPOINTS = 3
"""Maximum number of checkpoints on the disk at a time: the best, the last, and one that is being written."""
MANY_EPOCHS = 20
LARGE_VOCABULARY = 0.5
"""Fraction of the parameters in token embeddings and output head above which a warning is given."""
VOCABULARY = ("source embedding", "token embedding", "output head")


@dataclass(frozen=True)
class RunPlan:
    """Size, cost and duration of a run, computed before it starts.

    Attributes:
        config: all settings.
        components: parameters of the model, by component.
        vocab_size: size of the target vocabulary.
        training_tokens, validation_tokens: number of tokens in each split, including sources and targets.
        rows_per_step, tokens_per_step: mean number of rows and of tokens in the first `SAMPLED_STEPS` steps, without
            padding.
        steps_per_epoch: number of steps in one pass over the training split.
        steps: number of steps that `train.steps` and `train.minutes` allow; None if neither is set, or if there is a
            time limit but no measurement.
        longest: number of tokens in the longest training row; None for windows over running text, which all have
            the same length.
        checkpoint_bytes: size of one checkpoint in bytes.
        free_disk: free space in bytes on the disk with the prepared text.
        probe: measured times and memory (see `step_measurement`); None: not measured.
    """

    config: Config
    components: list[Component]
    vocab_size: int
    training_tokens: int
    validation_tokens: int
    rows_per_step: float
    tokens_per_step: float
    steps_per_epoch: float
    steps: int | None
    longest: int | None
    checkpoint_bytes: int
    free_disk: int
    probe: Probe | None

    @property
    def parameters(self) -> int:
        """Return the total number of parameters."""
        return sum(part.parameters for part in self.components)

    @property
    def epochs(self) -> float | None:
        """Return the number of passes over the training split; None if the number of steps is not known."""
        return None if self.steps is None else self.steps / self.steps_per_epoch

    @property
    def train_seconds(self) -> float | None:
        """Return the seconds of all training steps, without evaluations, samples and checkpoints; None if not known."""
        return self.steps * self.probe.seconds_per_step if self.probe and self.steps is not None else None

    @property
    def whole_seconds(self) -> float | None:
        """Return the seconds of the run, including evaluations, samples and checkpoints; None if not known.

        A run that starts from a parent is also evaluated before its first step, and its loss on the parent's text is
        measured before and after training.
        """
        if self.probe is None or self.steps is None:
            return None
        return _total_seconds(self.config, self.probe, self.steps)

    def facts(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        probe = self.probe
        return {
            "task": self.config.train.task,
            "parameters": self.parameters,
            "bytes": 4 * self.parameters,
            "components": {part.name: part.parameters for part in self.components},
            "vocab_size": self.vocab_size,
            "training_tokens": self.training_tokens,
            "validation_tokens": self.validation_tokens,
            "rows_per_step": self.rows_per_step,
            "tokens_per_step": self.tokens_per_step,
            "steps_per_epoch": self.steps_per_epoch,
            "steps": self.steps,
            "epochs": self.epochs,
            "device": probe and probe.device,
            "precision": self.config.train.precision,
            "seconds_per_step": probe and probe.seconds_per_step,
            "train_seconds": self.train_seconds,
            "whole_seconds": self.whole_seconds,
            "peak_memory_bytes": probe and probe.peak_bytes,
            "free_memory_bytes": probe and probe.free_bytes,
            "checkpoint_bytes": self.checkpoint_bytes,
        }

    def warnings(self) -> Iterator[str]:
        """Yield warnings about the run, most of them with a remedy."""
        if self.epochs is not None and self.epochs > MANY_EPOCHS:
            yield (
                f"the text is read {self.epochs:,.0f} times and may be memorized: "
                "use fewer steps, more text, or train.patience"
            )
        if self.steps_per_epoch < 1:
            rows = self.rows_per_step * self.steps_per_epoch
            yield (
                f"a step has {self.rows_per_step:,.0f} rows, but the training split has only {rows:,.0f}: "
                "lower train.batch or train.batch_tokens"
            )
        vocabulary = sum(part.parameters for part in self.components if part.name in VOCABULARY)
        if vocabulary > LARGE_VOCABULARY * self.parameters:
            yield (
                f"{vocabulary / self.parameters:.0%} of the parameters are in the token embeddings and output head: "
                "use a smaller tokenizer.vocab_size, or a larger model.width or model.layers"
            )
        context = self.config.model.context
        if self.longest is not None and 2 * self.longest <= context:
            yield f"model.context = {context:,}, but the longest row has {self.longest:,} tokens: lower model.context"
        yield from self._memory_and_disk_warnings()

    def _memory_and_disk_warnings(self) -> Iterator[str]:
        probe = self.probe
        needed = (probe.peak_bytes if probe else None) or 0
        if probe and probe.free_bytes is not None and needed > probe.free_bytes:
            yield (
                f"training may need {needed:,} bytes of memory, but only {probe.free_bytes:,} are free: "
                "lower train.micro_batch, model.context or the model's size"
            )
        if CHECKPOINTS * self.checkpoint_bytes > self.free_disk:
            needed = CHECKPOINTS * self.checkpoint_bytes
            yield f"{CHECKPOINTS} checkpoints need {needed:,} bytes, but the disk has only {self.free_disk:,} free"


def plan_run(config: Config, data: Prepared, probe: Probe | None, seconds_before: float = 0.0) -> RunPlan:
    """Build the plan of a run from its settings, its data and a measurement of training steps.

    Args:
        config: all settings.
        data: the prepared text.
        probe: measured times and memory; None: time and memory are unknown.
        seconds_before: wall seconds before training, which count towards `train.minutes`.
    """
    task = make_task(config, data)
    vocabulary, source, classes = vocabulary_sizes_and_classes(config, data)
    sampled_steps = [task.rows(step) for step in range(SAMPLED_STEPS)]
    return RunPlan(
        config=config,
        components=count_model(config.model, vocabulary, source, classes),
        vocab_size=vocabulary,
        training_tokens=_count_tokens(data.train),
        validation_tokens=_count_tokens(data.validation),
        rows_per_step=float(np.mean([len(rows) for rows in sampled_steps])),
        tokens_per_step=float(np.mean([_tokens_read(Batch.from_rows(rows)) for rows in sampled_steps])),
        steps_per_epoch=task.steps_per_epoch,
        steps=_allowed_steps(config, probe, seconds_before),
        longest=_longest_row(config, data),
        checkpoint_bytes=checkpoint_bytes(config, data),
        free_disk=shutil.disk_usage(data.folder).free,
        probe=probe,
    )


def _allowed_steps(config: Config, probe: Probe | None, seconds_before: float) -> int | None:
    """Return the number of steps that `train.steps` and `train.minutes` allow; None as in `RunPlan.steps`."""
    steps = config.train.steps
    minutes = config.train.minutes
    if minutes is None:
        return steps
    if probe is None:
        return None
    seconds_left = 60 * minutes * (1 - REST_SHARE) - REST_SECONDS - seconds_before
    max_steps = 1 + math.floor(60 * minutes / probe.seconds_per_step)
    max_steps = max_steps if steps is None else min(steps, max_steps)
    return max(
        1,
        bisect_right(range(max_steps + 1), seconds_left, key=lambda number: _total_seconds(config, probe, number)) - 1,
    )


def _total_seconds(config: Config, probe: Probe, steps: int) -> float:
    """Return the seconds of `steps` steps with evaluations (limited by `train.minutes`), samples and checkpoints."""
    train = config.train
    limit = math.inf if train.minutes is None else 60 * train.minutes
    max_seconds = ONE_EVALUATION * limit
    fraction = 1.0 if probe.evaluation_seconds <= max_seconds else max_seconds / probe.evaluation_seconds
    loss_seconds = fraction * probe.evaluation_seconds
    evaluation_seconds = loss_seconds + probe.sample_seconds
    parents_text = fraction * (probe.parent_seconds or 0.0)
    seconds_before = 0.0 if probe.parent_seconds is None else loss_seconds + parents_text
    evaluations_due = math.ceil(steps / train.evaluate_every)
    evaluations = (
        min(evaluations_due, max(1.0, (EVALUATIONS * limit - seconds_before) / evaluation_seconds))
        if evaluation_seconds
        else evaluations_due
    )
    checkpoints = evaluations + sum(step % train.evaluate_every != 0 for step in range(0, steps, train.save_every)) + 1
    final_seconds = min(probe.last_evaluation_seconds, FINAL * limit)
    seconds_after = final_seconds + parents_text
    return (
        seconds_before
        + steps * probe.seconds_per_step
        + evaluations * evaluation_seconds
        + seconds_after
        + checkpoints * probe.checkpoint_seconds
    )


def _count_tokens(store: RecordStore) -> int:
    return sum(map(len, store.tokens.values()))


def _tokens_read(batch: Batch) -> int:
    """Return the number of tokens in a batch that the model reads, without padding."""
    source = 0 if batch.source_attention_mask is None else int(batch.source_attention_mask.sum())
    return int(batch.attention_mask.sum()) + source


def _longest_row(config: Config, data: Prepared) -> int | None:
    """Return the length of the longest training row with its end token; None for windows of one length."""
    if data.kind.running_text and config.data.windows == "stream":
        return None
    return 1 + int(data.train.lengths().max())
