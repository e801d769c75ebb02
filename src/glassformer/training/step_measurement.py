"""Measure the time and memory of training steps on this machine by taking a few real steps of a temporary model.

The measurement, called a probe, runs in a separate process, so that only the memory of training is measured, and
running out of memory ends only that process. `python -m glassformer.training.step_measurement` reads its arguments from
standard input, where `probe` writes them.
"""

from __future__ import annotations

import atexit
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from glassformer.base.config import WRITERS, Config, SampleConfig
from glassformer.base.errors import GlassError, convert_memory_errors
from glassformer.model.device import choose_device
from glassformer.model.transformer import Model
from glassformer.runs.run_text import open_text
from glassformer.tasks.losses import tokens_at_once
from glassformer.tasks.task import Task
from glassformer.tasks.task_rows import MOST_TOKENS, groups
from glassformer.training.checkpoint import save_state
from glassformer.training.loop import compute_gradients
from glassformer.training.memory import (
    configure_allocator,
    free_memory,
    has_many_lengths,
    least_training_memory,
    peak_memory,
)
from glassformer.training.parent_text import ParentText
from glassformer.training.schedules import rate_factor
from glassformer.training.setup import fresh_model, set_threads, task_of
from glassformer.training.stepping import Stepper
from glassformer.training.thread_choice import choice_of
from glassformer.training.validation import validation_loss

WARM_UP = 3
"""Maximum number of steps at the start that are not counted, because they allocate memory and optimizer state."""
THREADS_SHARE = 1 / 6
"""Time for trying each number of threads, as a fraction of the time for steps, if the run will choose the number."""
SAMPLED = 16
"""Maximum number of tokens that the probe generates to estimate the time of a full sample."""
SEARCHED_STEPS = 1000
"""Maximum number of steps that are searched for the largest batches."""
SETTLED = 48
"""Number of steps after which memory use hardly grows, if rows have many different lengths."""


class ProbeError(GlassError):
    """Error raised if a probe fails."""


@dataclass(frozen=True)
class Probe:
    """Results of a probe: measured times and memory.

    Attributes:
        device: torch's name of the device, such as cpu or cuda.
        threads: number of CPU threads; the fastest number if the run will choose it.
        dtype: data type of matrix multiplications.
        steps: number of measured steps, without warm-up.
        seconds_per_step: mean time of the measured steps.
        evaluation_seconds: seconds of one evaluation during training, without its sample.
        last_evaluation_seconds: seconds of the final evaluation on the whole validation split.
        sample_seconds: seconds of one sample of full length.
        checkpoint_seconds: seconds of one checkpoint, written next to the prepared text.
        peak_bytes: peak memory of steps (including the largest), evaluation, sample and checkpoint; None if the system
            does not report it.
        free_bytes: free memory of the device before the probe; None if the system does not report it.
        parent_seconds: seconds of one evaluation on the held-out text of the run's parent; 0 if that text is not
            available, None for a run without a parent.
    """

    device: str
    threads: int
    dtype: str
    steps: int
    seconds_per_step: float
    evaluation_seconds: float
    last_evaluation_seconds: float
    sample_seconds: float
    checkpoint_seconds: float
    peak_bytes: int | None
    free_bytes: int | None
    parent_seconds: float | None = None


def probe(config: Config, tokens: Path, seconds: float, parent_text: ParentText | None = None) -> Probe:
    """Measure training with these settings in a separate process.

    Args:
        config: all settings.
        tokens: folder of the prepared text.
        seconds: seconds for training steps, unless two steps take longer. The start, trials of the number of threads,
            evaluations, a sample, a checkpoint, and steps that raise memory use to that of a long run take additional
            time.
        parent_text: text of the run's parent, whose rows `data.mix` uses; None: the run has no parent.

    Raises:
        ProbeError: the probe failed, most likely because memory ran out.
    """
    request = {
        "config": config.model_dump(mode="json"),
        "tokens": str(tokens),
        "seconds": seconds,
        "parent": None if parent_text is None else parent_text.facts(),
    }
    command = [sys.executable, "-m", "glassformer.training.step_measurement"]
    completed = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    lines = completed.stdout.splitlines()
    result = json.loads(lines[-1]) if lines and completed.returncode == 0 else {}
    if "problem" in result:
        raise ProbeError(result["problem"], result["remedy"])
    if not result:
        raise _probe_failure(completed.returncode, completed.stderr)
    return Probe(**result)


def measure(config: Config, tokens: Path, seconds: float, parent_text: ParentText | None = None) -> Probe:
    """Measure training in this process; this changes torch's random state and number of threads, and the peak memory.

    See `probe` for the arguments.

    Raises:
        GlassError: the device is missing, there is not enough memory, or the prepared text is damaged.
    """
    set_threads(config)
    device = choose_device(config.train.device)
    data = open_text(config, tokens)
    free_bytes = free_memory(device)
    least_bytes = least_training_memory(config, data)
    if free_bytes is not None and least_bytes > free_bytes:
        raise GlassError(
            f"weights, gradients and optimizer state alone need {least_bytes:,} bytes, but {device} has only "
            f"{free_bytes:,} free",
            "Lower model.layers, model.width or tokenizer.vocab_size, or free some memory.",
        )
    short_sample = config.sample.replace(tokens=min(SAMPLED, config.sample.tokens))
    with convert_memory_errors():
        stepper = Stepper(fresh_model(config, data), task_of(config, data, parent_text), config)
        if (threads := choice_of(config, lambda text: None)) is not None:
            threads.try_all(lambda step: _step(stepper, step), THREADS_SHARE * seconds, time.perf_counter)
        times = _step_times(stepper, seconds)
        task = stepper.task
        limit = config.train.evaluate_tokens
        evaluation = _evaluation_seconds(stepper, task.held_out(limit), seconds / 8)
        parent_seconds = None if parent_text is None else 0.0
        if parent_text is not None and parent_text.task is not None:
            parent_seconds = _evaluation_seconds(stepper, parent_text.task.held_out(limit), seconds / 8)
        sample = _sample_seconds(task, stepper.model, short_sample)
        checkpoint = _checkpoint_seconds(stepper, data.folder.parent)
        _raise_memory_use(stepper, len(times), seconds)
        last_evaluation = _evaluation_seconds(stepper, task.held_out(None), seconds / 8)
    if config.train.task in WRITERS:
        sample *= config.sample.tokens / short_sample.tokens
    return Probe(
        device=str(device),
        threads=torch.get_num_threads(),
        dtype=str(stepper.dtype).removeprefix("torch."),
        steps=len(times),
        seconds_per_step=sum(times) / len(times),
        evaluation_seconds=evaluation,
        last_evaluation_seconds=last_evaluation,
        sample_seconds=sample,
        checkpoint_seconds=checkpoint,
        peak_bytes=peak_memory(device),
        free_bytes=free_bytes,
        parent_seconds=parent_seconds,
    )


def _step_times(stepper: Stepper, seconds: float) -> list[float]:
    """Return the seconds of each step after warm-up; at least two steps run, because the first one allocates memory."""
    times: list[float] = []
    warm_up_steps = 0
    began = time.perf_counter()
    while not times or time.perf_counter() - began < seconds:
        started = time.perf_counter()
        _step(stepper, warm_up_steps + len(times))
        ended = time.perf_counter()
        if warm_up_steps == 0 or (warm_up_steps < WARM_UP and ended - began < seconds / 3):
            warm_up_steps += 1
        else:
            times.append(ended - started)
    return times


def _step(stepper: Stepper, step: int) -> None:
    stepper.update(compute_gradients(stepper, step), rate_factor(stepper.config.train, step, 0.0))


def _evaluation_seconds(stepper: Stepper, rows: Sequence[Any], seconds: float) -> float:
    """Estimate the seconds to evaluate all rows by evaluating evenly spaced rows for about `seconds`.

    If there are enough rows, at least two full forward passes run, because the second one may need more memory than the
    first one freed.
    """
    max_tokens = min(MOST_TOKENS, tokens_at_once(stepper.model))
    count = sum(len(group) for group in islice(groups(rows, max_tokens), 2))
    while True:
        selected_rows = [rows[number * len(rows) // count] for number in range(count)]
        started = time.perf_counter()
        validation_loss(stepper.model, selected_rows, stepper.device, stepper.dtype)
        elapsed = time.perf_counter() - started
        if count == len(rows) or elapsed > seconds / 2:
            return elapsed * len(rows) / count
        count = min(len(rows), 2 * count)


def _sample_seconds(task: Task, model: Model, settings: SampleConfig) -> float:
    started = time.perf_counter()
    task.sample(model, settings)
    return time.perf_counter() - started


def _raise_memory_use(stepper: Stepper, steps_taken: int, seconds: float) -> None:
    """Raise memory use to the level of a long run: take more steps if rows have many lengths, then the largest steps.

    Fragmentation of the heap depends on earlier allocations and increases over the first steps.
    """
    deadline = time.perf_counter() + seconds
    for step in range(steps_taken, SETTLED if has_many_lengths(stepper.config) else 0):
        if time.perf_counter() > deadline:
            break
        _step(stepper, step)
    for step in largest_steps(stepper, seconds / 4):
        _step(stepper, step)


def largest_steps(stepper: Stepper, seconds: float) -> list[int]:
    """Return the early steps of a run whose batches have the most input, source, and total tokens.

    Padding is counted. If rows have many different lengths, the few largest steps determine the peak memory.
    """
    largest = [(0, 0), (0, 0), (0, 0)]
    deadline = time.perf_counter() + seconds
    for step in range(min(SEARCHED_STEPS, stepper.config.train.steps or SEARCHED_STEPS)):
        for batch in stepper.batches(stepper.task.rows(step)):
            source = 0 if batch.source is None else batch.source.numel()
            sizes = (batch.inputs.numel(), source, batch.inputs.numel() + source)
            largest = [max(previous, (size, -step)) for previous, size in zip(largest, sizes, strict=True)]
        if time.perf_counter() > deadline:
            break
    return sorted({-step for _, step in largest})


def _checkpoint_seconds(stepper: Stepper, parent_folder: Path) -> float:
    with tempfile.TemporaryDirectory(dir=parent_folder, prefix=".probe-") as folder:
        started = time.perf_counter()
        save_state(Path(folder), stepper.model, stepper.optimizers)
        return time.perf_counter() - started


def _probe_failure(code: int, output: str) -> ProbeError:
    """Return the error for a probe that ended without a result."""
    if code in (-9, 137):
        problem = "the system killed the process that measures training steps, probably because memory ran out"
        return ProbeError(problem, "Lower train.batch, train.micro_batch, model.context or the model's size.")
    last = (output.strip().splitlines() or ["no output"])[-1]
    return ProbeError(
        f"the process that measures training steps ended with exit code {code}: {last[:300]}",
        "Correct this error first: training may fail too.",
    )


def _main() -> None:
    request = json.load(sys.stdin)
    config = Config.from_dict(request["config"])
    configure_allocator(config)
    try:
        parent_text = None if request["parent"] is None else ParentText.from_facts(request["parent"])
        result = asdict(measure(config, Path(request["tokens"]), request["seconds"], parent_text))
    except GlassError as error:
        result = {"problem": error.problem, "remedy": error.remedy}
    print(json.dumps(result))


if __name__ == "__main__":
    atexit.register(gc.freeze)  # as in the command line
    _main()
