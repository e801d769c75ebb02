"""Measure the time and memory of a step on this machine: take a few real steps, and keep nothing of them.

The probe is a process of its own: its memory is that of training and of nothing else, and where memory runs out, it is
the probe that ends. `python -m glassformer.training.step_measurement` reads what to do from standard input, as `probe`
writes it.
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
from glassformer.base.errors import GlassError, clear_memory_errors
from glassformer.model.device import choose_device
from glassformer.model.transformer import Model
from glassformer.runs.run_text import open_text
from glassformer.tasks.losses import tokens_at_once
from glassformer.tasks.task import Task
from glassformer.tasks.task_rows import MOST_TOKENS, groups
from glassformer.training.checkpoint import save_state
from glassformer.training.loop import compute_gradients
from glassformer.training.memory import free_memory, has_many_lengths, least_training_memory, peak_memory, steady_heap
from glassformer.training.parent_text import ParentText
from glassformer.training.schedules import rate_factor
from glassformer.training.setup import fresh_model, set_threads, task_of
from glassformer.training.stepping import Stepper
from glassformer.training.thread_choice import choice_of
from glassformer.training.validation import validation_loss

WARM_UP = 3
"""First steps, which are not counted: memory and optimizer state are made in them."""
THREADS_SHARE = 1 / 6
"""Share of the time for steps in which each number of threads is tried, where the run will choose."""
SAMPLED = 16
"""Tokens that the probe writes, to tell how long a whole sample takes."""
LOOKED_AT = 1000
"""Steps among which the largest are looked for."""
SETTLED = 48
"""Steps after which memory hardly grows any more where rows have many lengths."""


class ProbeError(GlassError):
    """The probe did not come to its end."""


@dataclass(frozen=True)
class Probe:
    """Results of a probe.

    Attributes:
        device: cpu, cuda …, as torch names it.
        threads: of the processor; where the run will choose their number, the faster one.
        dtype: of matrix products.
        steps: that were counted, after those to warm up.
        seconds_per_step: their mean.
        evaluation_seconds: of one evaluation during training, without its sample.
        last_evaluation_seconds: of the last one, on the whole validation part.
        sample_seconds: of one sample at its full length.
        checkpoint_seconds: of one checkpoint, written beside the prepared text.
        peak_bytes: the most memory that steps, the largest among them, evaluation, sample and checkpoint held; None
            where the system does not tell.
        free_bytes: what the device had free before; None where the system does not tell.
        parent_seconds: of one evaluation of the held-out text of the run's parent; 0 if that text is not at hand, None
            of a run without a parent.
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
        tokens: the folder of the prepared text.
        seconds: how long steps are taken; evaluation, sample and start come on top, and slow steps may take longer.
        parent_text: of the run's parent, of which `data.mix` takes rows; None: it has none.

    Raises:
        ProbeError: it did not come to its end, most likely for lack of memory.
    """
    asked = {
        "config": config.model_dump(mode="json"),
        "tokens": str(tokens),
        "seconds": seconds,
        "parent": None if parent_text is None else parent_text.facts(),
    }
    command = [sys.executable, "-m", "glassformer.training.step_measurement"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    answer = json.loads(lines[-1]) if lines and done.returncode == 0 else {}
    if "problem" in answer:
        raise ProbeError(answer["problem"], answer["remedy"])
    if not answer:
        raise _broken(done.returncode, done.stderr)
    return Probe(**answer)


def measure(config: Config, tokens: Path, seconds: float, parent_text: ParentText | None = None) -> Probe:
    """Measure in this process; draws random numbers, sets torch's threads, and leaves its mark on the peak of memory.

    See `probe` for the arguments.

    Raises:
        GlassError: memory is short, or the prepared text is damaged.
    """
    set_threads(config)
    device = choose_device(config.train.device)
    data = open_text(config, tokens)
    free = free_memory(device)
    least = least_training_memory(config, data)
    if free is not None and least > free:
        raise GlassError(
            f"weights, gradients and optimizer state alone need {least:,} bytes, and {device} has {free:,} free",
            "Make the model smaller, or free some memory.",
        )
    short = config.sample.replace(tokens=min(SAMPLED, config.sample.tokens))
    with clear_memory_errors():
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
        sample = _sample_seconds(task, stepper.model, short)
        checkpoint = _checkpoint_seconds(stepper, data.folder.parent)
        _settle(stepper, len(times), seconds)
        last = _evaluation_seconds(stepper, task.held_out(None), seconds / 8)
    if config.train.task in WRITERS:
        sample *= config.sample.tokens / short.tokens
    return Probe(
        device=str(device),
        threads=torch.get_num_threads(),
        dtype=str(stepper.dtype).removeprefix("torch."),
        steps=len(times),
        seconds_per_step=sum(times) / len(times),
        evaluation_seconds=evaluation,
        last_evaluation_seconds=last,
        sample_seconds=sample,
        checkpoint_seconds=checkpoint,
        peak_bytes=peak_memory(device),
        free_bytes=free,
        parent_seconds=parent_seconds,
    )


def _step_times(stepper: Stepper, seconds: float) -> list[float]:
    """Seconds of each step after those to warm up: two steps at least, for the second is the first with all memory."""
    times: list[float] = []
    warm = 0
    began = time.perf_counter()
    while not times or time.perf_counter() - began < seconds:
        started = time.perf_counter()
        _step(stepper, warm + len(times))
        ended = time.perf_counter()
        if warm == 0 or (warm < WARM_UP and ended - began < seconds / 3):
            warm += 1
        else:
            times.append(ended - started)
    return times


def _step(stepper: Stepper, step: int) -> None:
    stepper.update(compute_gradients(stepper, step), rate_factor(stepper.config.train, step, 0.0))


def _evaluation_seconds(stepper: Stepper, rows: Sequence[Any], seconds: float) -> float:
    """Estimate the seconds for all rows from as many evenly drawn rows as take `seconds`.

    Two full forward passes at least: the second one does not always fit the gaps that the first one leaves.
    """
    at_once = min(MOST_TOKENS, tokens_at_once(stepper.model))
    count = sum(len(group) for group in islice(groups(rows, at_once), 2))
    while True:
        some = [rows[number * len(rows) // count] for number in range(count)]
        started = time.perf_counter()
        validation_loss(stepper.model, some, stepper.device, stepper.dtype)
        took = time.perf_counter() - started
        if count == len(rows) or took > seconds / 2:
            return took * len(rows) / count
        count = min(len(rows), 2 * count)


def _sample_seconds(task: Task, model: Model, settings: SampleConfig) -> float:
    started = time.perf_counter()
    task.sample(model, settings)
    return time.perf_counter() - started


def _settle(stepper: Stepper, taken: int, seconds: float) -> None:
    """Let memory come to what it is in a long run: more steps where rows have many lengths, then the largest there are.

    The heap's gaps depend on what came before, and are filled by and by.
    """
    ends = time.perf_counter() + seconds
    for step in range(taken, SETTLED if has_many_lengths(stepper.config) else 0):
        if time.perf_counter() > ends:
            break
        _step(stepper, step)
    for step in largest_steps(stepper, seconds / 4):
        _step(stepper, step)


def largest_steps(stepper: Stepper, seconds: float) -> list[int]:
    """The steps, among those at the beginning of a run, whose forward passes read, write or do both with most tokens.

    Padding counts. Where rows have many lengths, memory follows the largest step, which few steps are like.
    """
    largest = [(0, 0), (0, 0), (0, 0)]
    ends = time.perf_counter() + seconds
    for step in range(min(LOOKED_AT, stepper.config.train.steps or LOOKED_AT)):
        for batch in stepper.batches(stepper.task.rows(step)):
            read = 0 if batch.source is None else batch.source.numel()
            sizes = (batch.inputs.numel(), read, batch.inputs.numel() + read)
            largest = [max(found, (size, -step)) for found, size in zip(largest, sizes, strict=True)]
        if time.perf_counter() > ends:
            break
    return sorted({-step for _, step in largest})


def _checkpoint_seconds(stepper: Stepper, beside: Path) -> float:
    with tempfile.TemporaryDirectory(dir=beside, prefix=".probe-") as folder:
        started = time.perf_counter()
        save_state(Path(folder), stepper.model, stepper.optimizers)
        return time.perf_counter() - started


def _broken(code: int, said: str) -> ProbeError:
    """Describe a probe that ended without an answer."""
    if code in (-9, 137):
        problem = "the system ended the probe, as it does when memory runs out"
        return ProbeError(problem, "Lower train.batch, train.micro_batch, model.context or the model's size.")
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    return ProbeError(f"the probe ended with exit code {code}: {last[:300]}", "Training may end in the same way.")


def _main() -> None:
    asked = json.load(sys.stdin)
    config = Config.from_dict(asked["config"])
    steady_heap(config)
    try:
        parent_text = None if asked["parent"] is None else ParentText.from_facts(asked["parent"])
        answer = asdict(measure(config, Path(asked["tokens"]), asked["seconds"], parent_text))
    except GlassError as error:
        answer = {"problem": error.problem, "remedy": error.remedy}
    print(json.dumps(answer))


if __name__ == "__main__":
    atexit.register(gc.freeze)  # as the command line does
    _main()
