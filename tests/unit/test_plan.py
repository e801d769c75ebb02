"""Predictions before a run: steps and epochs, time, memory, notes, and baselines."""

from __future__ import annotations

import math
import mmap
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.evaluation.simple_predictors import fast_baselines
from glassformer.model.precision import Speeds
from glassformer.runs.run_text import prepare_run_text
from glassformer.tasks.make import make_task
from glassformer.tasks.task import Task
from glassformer.training import memory, step_measurement
from glassformer.training.checkpoint import save_checkpoint
from glassformer.training.loop import compute_gradients
from glassformer.training.parent_text import ParentText
from glassformer.training.plan import RunPlan, plan_run
from glassformer.training.reporting import Silent
from glassformer.training.setup import fresh_model, new_training, task_of
from glassformer.training.step_measurement import Probe, ProbeError
from glassformer.training.stepping import Gradients, Stepper
from tests.property.trainers import small_config, take_step
from tests.unit.example_files import LABELLED, PAIRS, tsv, writer

GIB = 1 << 30
MEASURED = Probe("cpu", 1, "float32", 10, 0.5, 3.0, 7.0, 2.0, 0.25, 1 * GIB, 4 * GIB)
NAMES = ("lm", "documents", "masked", "classify", "translate", "lengths")


def config_of(name: str, folder: Path, **changes: Any) -> Config:
    """Return small settings for a kind of rows, with changes given as `section__field=value`."""
    write = writer(folder)
    if name in ("lm", "documents", "masked"):
        own: dict[str, Any] = {"train__task": "masked" if name == "masked" else "lm"}
        own["data__windows"] = "documents" if name == "documents" else "stream"
        return small_config(folder, **own, **changes)
    source = LABELLED if name == "classify" else tsv(PAIRS)
    own = {"data__source": write("examples.tsv", source), "data__document": "file", "model__context": 40}
    own["train__task"] = "classify" if name == "classify" else "translate"
    if name == "classify":
        own["data__label_column"] = "1"
    if name == "lengths":
        own["train__batch_tokens"] = 200
    return small_config(folder, **own, **changes)


def planned(config: Config, folder: Path, measured: Probe | None = MEASURED) -> RunPlan:
    return plan_run(config, prepare_run_text(config, folder / "cache", lambda text: None), measured)


@pytest.mark.parametrize("name", NAMES)
def test_an_epoch_reads_the_training_part_once(name: str, tmp_path: Path) -> None:
    config = config_of(name, tmp_path, train__batch=3)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    plan = plan_run(config, data, None)
    task = make_task(config, data)
    if name in ("lm", "masked"):  # windows are random: they hold as many tokens as the text
        assert plan.steps_per_epoch * 3 * config.model.context == pytest.approx(plan.training_tokens)
        assert plan.tokens_per_step == 3 * config.model.context
        return
    steps = math.ceil(plan.steps_per_epoch)
    rows = [row for step in range(steps) for row in task.rows(step)]
    rows = rows[: round(plan.steps_per_epoch * 3)] if name != "lengths" else rows
    if name == "documents":
        predicted = sum(len(row) - 1 for row in rows)
        assert predicted == plan.training_tokens
        return
    seen = Counter(str(row) for row in rows)
    assert seen.total() == len(data.train)
    assert seen == Counter(str(row) for row in task._train)


@pytest.mark.parametrize("name", ["documents", "classify", "translate", "lengths"])
def test_the_tokens_of_a_step_equal_those_read(name: str, tmp_path: Path) -> None:
    config = config_of(name, tmp_path, train__batch=3)
    plan = planned(config, tmp_path)
    whole = plan.tokens_per_step * plan.steps_per_epoch
    assert whole == pytest.approx(plan.training_tokens, rel=0.2)  # the mean of a few steps
    assert plan.rows_per_step == 3 or name == "lengths"


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*NAMES, "two vocabularies"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_size_equals_that_of_the_run(name: str, optimizer: str, tmp_path: Path) -> None:
    own = {"tokenizer__joint": False, "model__shared_embedding": False} if name == "two vocabularies" else {}
    name = "translate" if own else name
    config = config_of(name, tmp_path, train__optimizer=optimizer, **own)
    plan = planned(config, tmp_path)
    with new_training(config, tmp_path / "run", Silent()) as trainer:
        save_checkpoint(trainer.run, trainer.model, trainer.optimizers, trainer.state, config)
    take_step(trainer)
    folder = save_checkpoint(trainer.run, trainer.model, trainer.optimizers, trainer.state, config)
    tensors = [load_file(folder / f"{part}.safetensors") for part in ("model", "optimizer")]
    assert plan.parameters == sum(value.numel() for value in tensors[0].values())
    assert plan.checkpoint_bytes == sum(value.nbytes for part in tensors for value in part.values())
    state = sum(value.nbytes for value in tensors[1].values())
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    assert memory.least_training_memory(config, data) == 8 * plan.parameters + state


@pytest.mark.parametrize(
    ("steps", "minutes", "evaluation", "expected"),
    [(40, None, 5.0, 40), (None, 2.0, 2.6, 204), (40, 2.0, 2.6, 40), (500, 2.0, 2.6, 204)],
)
def test_steps_and_minutes(
    steps: int | None, minutes: float | None, evaluation: float, expected: int, tmp_path: Path
) -> None:
    """Of two minutes, 118.3 s are for training and evaluation: 204 steps, 3 evaluations and 5 checkpoints fit.

    An evaluation uses the rows that fit into 0.6 s, and writes a sample in 2 s.
    """
    config = small_config(
        tmp_path, train__steps=steps, train__minutes=minutes, train__evaluate_every=100, train__save_every=150
    )
    plan = planned(config, tmp_path)
    assert plan.steps == expected
    assert plan.epochs == pytest.approx(expected * 5 * 13 / plan.training_tokens)
    assert plan.train_seconds == expected * 0.5
    evaluations = math.ceil(expected / 100)
    saves = evaluations + 1 + (expected > 150)  # at the start, and after 150 steps
    assert plan.whole_seconds == pytest.approx(expected * 0.5 + evaluations * evaluation + saves * 0.25 + 7.0)


def test_minutes_limit_evaluations_and_elapsed_time_counts(tmp_path: Path) -> None:
    limits = {"train__steps": None, "train__minutes": 1.0, "train__evaluate_every": 1, "train__save_every": 1000}
    config = small_config(tmp_path, **limits)
    plan = planned(config, tmp_path)
    # Of 58.9 s, 6 are for 2.6 evaluations, a tenth; 6 for the final one, a tenth; 0.9 for 3.6 checkpoints.
    assert plan.steps == 91
    assert plan.whole_seconds == pytest.approx(91 * 0.5 + 6 + 6 + 0.25 * (6 / 2.3 + 1))
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    assert plan_run(config, data, MEASURED, seconds_before=20.0).steps == 51
    least = small_config(tmp_path, **{**limits, "train__minutes": 1e-4})
    assert planned(least, tmp_path).steps == 1


def test_a_child_is_evaluated_before_its_first_step_and_its_parents_text_twice(tmp_path: Path) -> None:
    config = small_config(tmp_path, train__steps=40, train__evaluate_every=100)
    alone = planned(config, tmp_path).whole_seconds
    assert alone is not None
    for seconds in (4.0, 0.0):  # the parent's text may not be available
        child = planned(config, tmp_path, replace(MEASURED, parent_seconds=seconds))
        assert child.whole_seconds == pytest.approx(alone + 3.0 + 2 * seconds)
    limits = {"train__steps": None, "train__minutes": 1.0, "train__evaluate_every": 1, "train__save_every": 1000}
    timed = small_config(tmp_path, **limits)
    # Of 58.9 s, 0.5 are for what is measured before the first step and belong to the tenth for evaluations, of which
    # 2.4 more fit; 6 for the final one, 0.2 for the parent's text, 0.8 for 3.4 checkpoints.
    for evaluation in (3.0, 6.0):  # 0.3 s for a tenth or a twentieth of the rows, 0.2 s for as many of the parent's
        measured = replace(MEASURED, evaluation_seconds=evaluation, parent_seconds=2.0 * evaluation / 3.0)
        plan = planned(timed, tmp_path, measured)
        assert plan.steps == 91
        assert plan.whole_seconds == pytest.approx(91 * 0.5 + 0.5 + 5.5 + 6 + 0.2 + 0.25 * (5.5 / 2.3 + 1))


def test_unmeasured_values_are_none(tmp_path: Path) -> None:
    plan = planned(small_config(tmp_path), tmp_path, None)
    assert (plan.steps, plan.train_seconds, plan.whole_seconds) == (24, None, None)
    timed = planned(small_config(tmp_path, train__steps=None, train__minutes=3.0), tmp_path, None)
    assert (timed.steps, timed.epochs) == (None, None)
    endless = small_config(tmp_path, train__steps=None, train__patience=3, train__schedule="constant")
    open_end = planned(endless, tmp_path)
    assert (open_end.steps, open_end.train_seconds) == (None, None)
    assert list(timed.warnings()) == list(open_end.warnings()) == []


def test_warnings(tmp_path: Path) -> None:
    calm = planned(config_of("translate", tmp_path), tmp_path)
    assert list(calm.warnings()) == []
    short = replace(MEASURED, peak_bytes=2 * GIB + 1, free_bytes=2 * GIB)
    for words, plan in {
        "may be memorized": replace(calm, steps=math.ceil(20 * calm.steps_per_epoch) + 1),
        "lower train.batch": replace(calm, steps=1, steps_per_epoch=0.99),
        "longest row has 20 tokens": replace(calm, longest=20),
        "may need 2,147,483,649 bytes of memory, but only 2,147,483,648 are free": replace(calm, probe=short),
        "but the disk has only": replace(calm, free_disk=3 * calm.checkpoint_bytes - 1),
    }.items():
        (warning,) = plan.warnings()
        assert words in warning
    edges = replace(
        calm,
        steps=math.floor(20 * calm.steps_per_epoch),
        longest=21,
        free_disk=3 * calm.checkpoint_bytes,
        probe=replace(MEASURED, peak_bytes=2 * GIB, free_bytes=2 * GIB),
    )
    assert list(edges.warnings()) == []
    heavy = [part if part.name != "token embedding" else replace(part, parameters=10**6) for part in calm.components]
    (warning,) = replace(calm, components=heavy).warnings()
    assert "of the parameters are in the token embeddings and output head" in warning


def test_the_longest_row_is_found(tmp_path: Path) -> None:
    assert planned(config_of("lm", tmp_path), tmp_path).longest is None
    documents = planned(config_of("documents", tmp_path), tmp_path)
    text = (tmp_path / "proverbs.txt").read_text(encoding="utf-8").splitlines()
    assert documents.longest == 1 + max(map(len, text))
    pairs = planned(config_of("translate", tmp_path), tmp_path)
    assert pairs.longest == 1 + max(len(text) for pair in PAIRS for text in pair)


@pytest.mark.parametrize("name", ["masked", "translate"])
def test_frequencies_of_tokens_by_hand(name: str, tmp_path: Path) -> None:
    config = config_of(name, tmp_path)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    known, held = (side.target.tokens.tolist() for side in (data.train, data.validation))
    if name == "masked":  # end tokens are never masked
        known, held = ([token for token in side if token != data.tokenizer.end_id] for side in (known, held))
    counts = Counter(known)
    V = data.tokenizer.vocab_size
    expected = -np.mean([math.log((counts[token] + 1) / (len(known) + V)) for token in held])
    uniform, unigram = fast_baselines(config, data)
    assert (uniform.name, uniform.loss) == ("uniform", pytest.approx(math.log(V)))
    assert (unigram.name, unigram.loss) == ("unigram", pytest.approx(expected))
    assert unigram.accuracy is None


def test_frequencies_of_labels_by_hand(tmp_path: Path) -> None:
    config = config_of("classify", tmp_path)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    uniform, frequencies = fast_baselines(config, data)
    known = Counter(label for _, label in data.train.texts())
    held = [label for _, label in data.validation.texts()]
    assert (uniform.loss, uniform.accuracy) == (pytest.approx(math.log(2)), 0.5)
    expected = -np.mean([math.log((known[label] + 1) / (known.total() + 2)) for label in held])
    assert frequencies.loss == pytest.approx(expected)
    assert frequencies.accuracy == pytest.approx(held.count("ham") / len(held))
    assert "always ham" in frequencies.note


def test_a_generated_corpus_has_a_best_possible_accuracy(tmp_path: Path) -> None:
    values = {"data": {"source": "topics", "size": 200}, "train": {"task": "classify"}, "tokenizer": {"kind": "words"}}
    config = Config.from_dict(values)
    best = fast_baselines(config, prepare_run_text(config, tmp_path / "cache", lambda text: None))[-1]
    assert best.name == "best possible"
    assert best.loss is None
    assert best.accuracy is not None
    assert 0.5 < best.accuracy < 1


def test_the_probe_does_not_count_its_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(tmp_path)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    stepper = Stepper(fresh_model(config, data), make_task(config, data), config)
    clock = [0.0]
    taken = []
    costs = {0: 9.0, 1: 0.4, 2: 0.3}  # of each step; all others take 0.1 s

    def gradients(stepper: Stepper, step: int) -> Gradients:
        clock[0] += costs.get(step, 0.1)
        taken.append(step)
        return Gradients(1.0, torch.ones(()), 1, [])

    monkeypatch.setattr(step_measurement, "compute_gradients", gradients)
    monkeypatch.setattr(Stepper, "update", lambda *_: None)
    monkeypatch.setattr(step_measurement.time, "perf_counter", lambda: clock[0])
    assert step_measurement._step_times(stepper, 6.0) == pytest.approx(
        [0.4]
    )  # the first step alone took longer than that
    taken.clear()
    costs[0] = 0.5
    clock[0] = 0.05
    assert step_measurement._step_times(stepper, 5.95) == pytest.approx([0.1] * 48)
    assert taken == list(range(51))


def test_the_time_of_an_evaluation_is_estimated_from_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(tmp_path)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    stepper = Stepper(fresh_model(config, data), make_task(config, data), config)
    clock = [0.0]
    sizes = []

    def validation_loss(model: object, rows: list[Any], *_: object, **__: object) -> None:
        clock[0] += 0.01 * len(rows)
        sizes.append(len(rows))

    monkeypatch.setattr(step_measurement, "validation_loss", validation_loss)
    monkeypatch.setattr(step_measurement, "MOST_TOKENS", 14 * 13)
    monkeypatch.setattr(step_measurement.time, "perf_counter", lambda: clock[0])
    rows = [np.arange(14)] * 1000
    assert step_measurement._evaluation_seconds(stepper, rows, 1.0) == pytest.approx(10.0)
    assert sizes == [26, 52]
    sizes.clear()
    assert step_measurement._evaluation_seconds(stepper, rows[:20], 1.0) == pytest.approx(0.2)
    assert sizes == [20]


def test_the_largest_steps_are_found_and_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("translate", tmp_path, train__batch=3)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    stepper = Stepper(fresh_model(config, data), make_task(config, data), config)
    found = step_measurement.largest_steps(stepper, 60.0)

    def sizes(step: int) -> tuple[int, int]:
        (batch,) = stepper.batches(stepper.task.rows(step))
        assert batch.source is not None
        return batch.inputs.numel(), batch.source.numel()

    steps = range(config.train.steps or 0)
    assert 1 <= len(found) <= 3
    for size in (lambda step: sizes(step)[0], lambda step: sizes(step)[1], lambda step: sum(sizes(step))):
        assert max(map(size, found)) == max(map(size, steps)) > min(map(size, steps))
    taken: list[int] = []
    monkeypatch.setattr(step_measurement, "_step", lambda stepper, step: taken.append(step))
    step_measurement._raise_memory_use(stepper, 5, 60.0)
    assert taken == [*range(5, step_measurement.SETTLED), *found]
    windows = config_of("lm", tmp_path)
    data = prepare_run_text(windows, tmp_path / "cache", lambda text: None)
    taken.clear()
    step_measurement._raise_memory_use(Stepper(fresh_model(windows, data), make_task(windows, data), windows), 5, 60.0)
    assert len(taken) == 1  # all are equally large, and none is needed before it


def test_the_probe_mixes_rows_of_the_parent_as_training_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = small_config(tmp_path)
    new = old.with_changes({"data.source": str(writer(tmp_path)("new.txt", "abcdefgh " * 200)), "data.mix": "0.5"})
    cache = tmp_path / "cache"
    parent = prepare_run_text(old, cache, lambda text: None)
    data = prepare_run_text(new, cache, lambda text: None, tuple(parent.tokenizers.values()))
    parent_text = ParentText.opened(old, parent.folder)
    taken: list[list[list[int]]] = []

    def rows_of(task: Task, step: int) -> list[list[int]]:
        return [row.ids.tolist() for row in task.rows(step)]

    def gradients(stepper: Stepper, step: int) -> Gradients:
        taken.append(rows_of(stepper.task, step))
        return compute_gradients(stepper, step)

    monkeypatch.setattr(step_measurement, "compute_gradients", gradients)
    step_measurement.measure(new, data.folder, 0.01, parent_text)
    mixed = task_of(new, data, parent_text)
    assert taken[0] == rows_of(mixed, 0)
    assert taken[0] != rows_of(make_task(new, data), 0)


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="this system cannot forget a peak")
def test_peak_memory_can_be_reset() -> None:
    device = torch.device("cpu")
    size = 64 << 20
    with mmap.mmap(-1, size) as pages:  # not from malloc's heap, which may keep freed memory
        pages.write(bytes(size))
    before = memory.peak_memory(device)
    memory.reset_peak_memory(device)
    after = memory.peak_memory(device)
    assert before is not None
    assert after is not None
    assert after < before - (48 << 20)


def test_steps_that_exceed_memory_are_not_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(tmp_path)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    least = memory.least_training_memory(config, data)
    monkeypatch.setattr(step_measurement, "free_memory", lambda device: least - 1)
    with pytest.raises(GlassError, match=f"alone need {least:,} bytes, but cpu has only {least - 1:,} free"):
        step_measurement.measure(config, data.folder, 0.01)
    monkeypatch.setattr(step_measurement, "free_memory", lambda device: least)
    found = step_measurement.measure(config, data.folder, 0.01)
    assert found.free_bytes == least
    assert found.steps >= 1
    assert min(found.seconds_per_step, found.evaluation_seconds, found.sample_seconds) > 0


@pytest.mark.thorough
def test_the_probe_does_not_affect_this_process(tmp_path: Path) -> None:
    config = small_config(tmp_path, train__threads=1)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state()
        found = step_measurement.probe(config, data.folder, 0.01)
        assert (found.device, found.threads) == ("cpu", 1)
        assert torch.equal(before, torch.get_rng_state())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    if memory.STATUS.exists():
        assert found.peak_bytes is not None
        assert 20e6 < found.peak_bytes < 1e9
    (data.folder / "train.json").unlink()
    with pytest.raises(ProbeError, match="is missing"):
        step_measurement.probe(config, data.folder, 0.01)


def test_a_failing_probe_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = step_measurement._probe_failure(-9, "")
    odd = step_measurement._probe_failure(1, "Traceback\nValueError: so\n")
    silent = step_measurement._probe_failure(3, "")
    assert "memory" in killed.problem
    assert "train.micro_batch" in killed.remedy
    assert odd.problem == "the process that measures training steps ended with exit code 1: ValueError: so"
    assert "no output" in silent.problem
    monkeypatch.setattr(step_measurement.sys, "executable", "false")  # ends at once, with exit code 1
    with pytest.raises(ProbeError, match="exit code 1"):
        step_measurement.probe(small_config(tmp_path), tmp_path, 1.0)


FILLED_AND_LET_GO = """
import torch
from glassformer.training.memory import peak_memory

before = peak_memory(torch.device("cpu"))
torch.ones(64 << 18)
after = peak_memory(torch.device("cpu"))
print(before, after)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not memory.STATUS.exists(), reason="this system has no /proc/self/status")
def test_peak_memory_includes_freed_memory() -> None:
    # In a separate process: this one may reuse memory that it freed after training.
    script = [sys.executable, "-c", FILLED_AND_LET_GO]
    written = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    before, after = map(int, written.split())
    assert 60 << 20 < after - before < 68 << 20


def test_free_memory_respects_the_container_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:    5000 kB\n", encoding="ascii")
    assert memory.free_memory(torch.device("cpu")) == 5000 * 1024
    (tmp_path / "memory.current").write_text("1000\n", encoding="ascii")
    for limit, expected in (("max", 5000 * 1024), ("3000", 2000), ("99999999", 5000 * 1024), ("500", 0)):
        (tmp_path / "memory.max").write_text(limit + "\n", encoding="ascii")
        assert memory.free_memory(torch.device("cpu")) == expected


CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


@pytest.mark.parametrize(
    ("task", "precision", "before", "after"),
    [
        ("translate", "fp32", None, "0"),
        ("classify", "bf16", None, "128"),
        ("translate", "auto", "7", "7"),
        ("lm", "fp32", None, None),
    ],
)
def test_shapes_that_do_not_recur_are_not_cached(
    task: str, precision: str, before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CACHES:
        monkeypatch.setenv(name, before or "")
        if before is None:
            monkeypatch.delenv(name)
    settings = {"train": {"task": task, "precision": precision, "device": "cpu"}}
    memory.configure_allocator(Config.from_dict(settings))
    assert os.environ.get(CACHES[0]) == after
    assert os.environ.get(CACHES[1]) == (before or (None if after is None else "16"))


@pytest.mark.parametrize(("speeds", "kept"), [(None, "128"), (Speeds(100.0, 500.0), "128"), (Speeds(100.0, 2.0), "0")])
def test_the_precision_of_auto_decides_how_many_shapes_are_cached(
    speeds: Speeds | None, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is that of the precision that `auto` will choose; if the speeds are unknown, it is that of `bf16`."""
    for name in CACHES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(memory, "cached_speeds", lambda: speeds)
    memory.limit_shape_caches(Config.from_dict({"train": {"task": "classify", "precision": "auto", "device": "cpu"}}))
    assert os.environ.get(CACHES[0]) == kept
