"""A run ends within 110 % of its time limit for many costs of its actions, on a clock that only these costs advance."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.base.config import SampleConfig
from glassformer.runs.parent import Parent
from glassformer.runs.run_text import prepare_run_text
from glassformer.tasks.task import LanguageTask
from glassformer.training import loop, setup
from glassformer.training.checkpoint import load_checkpoint
from glassformer.training.loop import train
from glassformer.training.pace import evenly
from glassformer.training.parallel.processes import OneProcess
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training, resume_training
from glassformer.training.stepping import Stepper
from glassformer.training.thread_choice import ThreadChoice
from glassformer.training.trainer import Trainer, TrainingOutcome
from tests.property.trainers import same, small_config, small_trainer, weights

EXIT = 0.3
"""Seconds that the process takes to exit."""
LEARNING_RATE = 0.01


@dataclass
class Costs:
    """The cost of each action as a fraction of `minutes`; `evaluation` is for the whole validation split."""

    minutes: float = 1.0
    before: float = 0.05
    step: float = 0.01
    evaluation: float = 0.02
    sample: float = 0.01
    save: float = 0.005

    def seconds(self, name: str) -> float:
        return 60 * self.minutes * float(getattr(self, name))


@dataclass
class World:
    """A clock that advances only by the cost of work, with a record of the time spent on each action."""

    costs: Costs
    now: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)
    training: bool = True
    threads: dict[int, float] = field(default_factory=dict)

    def spend(self, name: str, share: float = 1.0) -> None:
        seconds = share * self.costs.seconds(name)
        self.now += seconds
        self.spent[name] = self.spent.get(name, 0.0) + seconds

    @property
    def evaluating(self) -> float:
        """Seconds of evaluations and samples during training, excluding the final evaluation."""
        return self.spent.get("evaluation", 0.0) + self.spent.get("sample", 0.0)


@contextmanager
def costing(world: World) -> Iterator[None]:
    """Let steps, evaluations, samples and checkpoints advance the clock of a world inside this context."""
    gradients = loop.compute_gradients
    loss_of = Trainer._loss_of
    save = OneProcess.save
    final = Trainer._final_loss

    def step(stepper: Stepper, number: int) -> Any:
        world.spend("step", world.threads.get(torch.get_num_threads(), 1.0))
        return gradients(stepper, number)

    def loss(self: Trainer, model: Any, rows: Any, processes: Any = None) -> Any:
        share = len(rows) / len(self.task.held_out(None))
        if world.training:
            world.spend("evaluation", share)
        else:
            world.now += share * world.costs.seconds("evaluation")
        return loss_of(self, model, rows, processes)

    def last(self: Trainer) -> Any:
        world.training = False
        return final(self)

    def sample(self: LanguageTask, model: Any, settings: SampleConfig) -> tuple[str, str]:
        world.spend("sample", settings.tokens / 200)
        return "", "x"

    def saved(self: OneProcess, *arguments: Any) -> None:
        world.spend("save")
        save(self, *arguments)

    with (
        mock.patch.object(loop, "compute_gradients", step),
        mock.patch.object(setup, "compute_gradients", step),
        mock.patch.object(Trainer, "_loss_of", loss),
        mock.patch.object(Trainer, "_final_loss", last),
        mock.patch.object(LanguageTask, "sample", sample),
        mock.patch.object(OneProcess, "save", saved),
    ):
        yield


def trained(
    folder: Path,
    world: World,
    name: str = "run",
    stop: Callable[[Trainer], bool] | None = None,
    parent: Parent | None = None,
    **changes: Any,
) -> tuple[TrainingOutcome | None, Trainer]:
    """Train a run with a time limit in a world; `stop` is called after each step and returns whether to stop."""
    own = {
        "train__minutes": world.costs.minutes,
        "train__steps": None,
        "train__schedule": "linear",
        "train__final_rate": 0.0,
        "train__warmup": 0,
        "train__learning_rate": LEARNING_RATE,
        "sample__tokens": 200,
        "train__log_every": 1,
        "model__layers": 1,
        "train__evaluate_every": 4,
        "train__save_every": 1000,
    }
    world.now += world.costs.seconds("before")
    config = small_config(folder, **{**own, **changes})
    opened = new_training(config, folder / name, Silent(), seconds=lambda: world.now, parent=parent)
    with costing(world), opened as trainer:
        return _ended(trainer, stop), trainer


def gone_on(
    folder: Path, world: World, name: str = "run", stop: Callable[[Trainer], bool] | None = None, **changes: str
) -> tuple[TrainingOutcome | None, Trainer]:
    """Resume a run in a new world."""
    world.now += world.costs.seconds("before")
    with costing(world), resume_training(folder / name, changes, Silent(), seconds=lambda: world.now) as trainer:
        return _ended(trainer, stop), trainer


def _ended(trainer: Trainer, stop: Callable[[Trainer], bool] | None) -> TrainingOutcome | None:
    count_step = trainer.count_step

    def watched(*given: Any) -> None:
        count_step(*given)
        trainer.stop_requested = stop is not None and stop(trainer)

    trainer.count_step = watched  # type: ignore[method-assign]
    return train(trainer)


def lines(trainer: Trainer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trainer.run.metrics_file.read_text(encoding="utf-8").splitlines()]


costs = st.builds(
    Costs,
    minutes=st.floats(0.5, 20),
    before=st.floats(0, 0.25),
    step=st.floats(0.005, 0.05),
    evaluation=st.floats(0.001, 0.5),
    sample=st.floats(0, 0.04),
    save=st.floats(0, 0.02),
)


@pytest.mark.thorough
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(costs=costs, every=st.integers(1, 12))
def test_the_time_limit_is_respected_for_any_costs(
    tmp_path_factory: pytest.TempPathFactory, costs: Costs, every: int
) -> None:
    world = World(costs)
    outcome, trainer = trained(tmp_path_factory.mktemp("run"), world, train__evaluate_every=every)
    whole = 60 * costs.minutes
    assert outcome is not None
    assert world.now + EXIT <= 1.1 * whole
    assert "leaves no time for another step" in outcome.reason
    assert trainer.state.evaluations[-1][0] == trainer.state.step  # the last step is always evaluated
    assert world.evaluating <= whole / 10 * (1 + 1e-6)
    rates = [line["learning_rate"] / LEARNING_RATE for line in lines(trainer)]
    assert rates[-1] <= 0.05 + 3 * costs.step / (1 - costs.before - 0.4)  # near the end of the schedule, 0
    wanted = len(trainer.task.held_out(None))
    assert outcome.validation_share == len(evenly(trainer.task.held_out(None), outcome.validation.rows)) / wanted
    if 1.2 * costs.evaluation <= 0.1:
        assert outcome.validation_share == 1
    if costs.evaluation > 0.1:
        assert 0 < outcome.validation_share <= max(0.1 / costs.evaluation, 2 / wanted) * (1 + 1e-6)


def test_most_of_the_time_is_used(tmp_path: Path) -> None:
    world = World(Costs())
    trained(tmp_path, world)
    assert world.now >= 0.95 * 60


@pytest.mark.parametrize("evaluation", [0.01, 0.04, 0.09])
def test_one_evaluation_before_the_end_is_always_made(tmp_path: Path, evaluation: float) -> None:
    _, trainer = trained(tmp_path, World(Costs(evaluation=evaluation)), train__evaluate_every=1)
    evaluated = [step for step, _ in trainer.state.evaluations]
    assert len(evaluated) >= 2
    assert evaluated[0] < trainer.state.step == evaluated[-1]


def test_evaluations_of_a_run_measure_the_same_rows(tmp_path: Path) -> None:
    world = World(Costs(evaluation=0.4))
    _, trainer = trained(tmp_path, world, stop=lambda trainer: trainer.state.step == 30)
    rows = trainer.state.times.rows
    assert rows is not None
    assert rows < len(trainer.task.held_out(None))
    _, again = gone_on(tmp_path, World(Costs(evaluation=0.01, before=0.01)))
    assert again.state.times.rows == rows


def test_processes_of_a_run_share_its_time_without_the_pauses(tmp_path: Path) -> None:
    first = World(Costs())
    outcome, _ = trained(tmp_path, first, stop=lambda trainer: first.now > 20)
    assert outcome is None
    second = World(Costs())
    outcome, trainer = gone_on(tmp_path, second)
    assert outcome is not None
    assert "leaves no time for another step" in outcome.reason
    assert 0.9 * 60 <= first.now + second.now <= 1.1 * 60
    assert trainer.pace is not None
    assert trainer.pace.clock.earlier == pytest.approx(first.now)


@pytest.mark.parametrize("stopped", [False, True])
def test_time_is_reserved_to_evaluate_on_the_parents_text(stopped: bool, tmp_path: Path) -> None:
    """A resumed run also reserves time to evaluate on the parent's text, although it does not do so at its start."""
    train(small_trainer(tmp_path, "parent", train__steps=4))
    parent = Parent.open(tmp_path / "parent")
    costs = Costs(evaluation=0.09, sample=0.001)
    first = World(costs)
    stop = (lambda trainer: first.now > 25) if stopped else None
    outcome, _ = trained(tmp_path, first, stop=stop, parent=parent, model__layers=2)
    spent = first.now
    if stopped:
        assert outcome is None
        second = World(costs)
        outcome, _ = gone_on(tmp_path, second)
        spent += second.now
    assert outcome is not None
    assert outcome.parent_losses is not None
    assert 0.9 * 60 <= spent <= 60


def test_a_finished_run_resumes_only_with_more_minutes(tmp_path: Path) -> None:
    slow = Costs(evaluation=0.3)
    outcome, trainer = trained(tmp_path, World(slow))
    again, same_run = gone_on(tmp_path, World(Costs(evaluation=0.3, before=0.0)))
    assert outcome is not None
    assert again is not None
    assert same_run.state.step == trainer.state.step
    assert (again.validation, again.validation_share) == (outcome.validation, outcome.validation_share)
    third = World(slow)
    more, longer = gone_on(tmp_path, third, **{"train.minutes": "2"})
    assert more is not None
    assert longer.state.step > trainer.state.step
    assert 0.85 * 60 <= third.now <= 1.1 * 60


def test_a_run_limited_by_steps_does_not_use_up_its_minutes(tmp_path: Path) -> None:
    first = World(Costs(minutes=5.0, step=0.001))
    outcome, trainer = trained(tmp_path, first, train__steps=10)
    assert outcome is not None
    assert outcome.reason == "all 10 steps are done"
    assert trainer.state.train_seconds + trainer.state.times.other < 0.3 * 300
    assert (trainer.run.config().train.minutes, trainer.run.config().train.steps) == (5.0, 10)
    assert lines(trainer)[-1]["learning_rate"] <= 0.11 * LEARNING_RATE


def test_with_too_little_time_one_step_is_evaluated_saved_and_reported(tmp_path: Path) -> None:
    world = World(Costs(minutes=0.01, before=5.0, step=0.5))
    said: list[str] = []
    with mock.patch.object(Silent, "note", lambda self, text: said.append(text)):
        outcome, trainer = trained(tmp_path, world)
    assert outcome is not None
    assert trainer.state.step == 1
    assert [step for step, _ in trainer.state.evaluations] == [1]
    assert lines(trainer)[0]["learning_rate"] == LEARNING_RATE  # the schedule does not end before it begins
    assert trainer.run.checkpoint("last").name == "step-000001"
    (note,) = (text for text in said if "more than train.minutes = 0.01" in text)
    assert "give at least --minutes" in note


def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    ends = []
    for name, jump in (("still", 0.0), ("forward", 1e9), ("back", -1e9)):
        true = time.time
        with mock.patch.object(time, "time", lambda jump=jump, true=true: true() + jump):
            world = World(Costs())
            _, trainer = trained(tmp_path, world, name)
        ends.append((trainer.state.step, world.now, trainer.state.evaluations))
    assert ends[0] == ends[1] == ends[2]


def test_a_run_of_steps_reads_no_clock_and_tries_no_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a run of steps depends on no clock")

    plain = small_trainer(tmp_path, "plain", train__threads=None)
    train(plain)
    monkeypatch.setattr(ThreadChoice, "try_all", forbidden)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    config = small_config(tmp_path, train__threads=None)
    with new_training(config, tmp_path / "run", Silent(), seconds=forbidden) as trainer:
        assert train(trainer) is not None
    assert trainer.threads is None
    assert same(weights(plain), weights(trainer))
    assert trainer.state.evaluations == plain.state.evaluations
    kept = json.loads((trainer.run.checkpoint("last") / "state.json").read_text(encoding="utf-8"))["progress"]["times"]
    assert kept == {"other": 0.0, "evaluations": 0.0, "began": 0.0, "rows": None, "final_rows": None}


@pytest.mark.parametrize("faster", [1, 2])
def test_trying_threads_has_no_side_effects_and_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faster: int
) -> None:
    """Weights and random numbers equal those of a run with a given number of threads."""
    used = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: used[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: used.__setitem__(0, number))
    monkeypatch.setattr(setup.ThreadChoice.__init__, "__defaults__", (torch.set_num_threads,))
    ends = []
    for name, number in (("given", 2), ("tried", None)):
        world = World(Costs(minutes=2.0), threads={faster: 0.5})
        used[0] = 2
        torch.manual_seed(5)
        own = {"train__threads": number, "train__schedule": "constant"}  # other schedules follow the clock
        outcome, trainer = trained(tmp_path, world, name, stop=lambda trainer: trainer.state.step == 7, **own)
        assert outcome is None
        ends.append((weights(trainer), torch.rand(3)))
    assert same(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])
    (leg,) = json.loads((tmp_path / "tried" / "manifest.json").read_text(encoding="utf-8"))["legs"]
    assert leg["threads"] == faster
    assert used[0] == 2  # restored
    assert leg["threads_tried"].keys() == {"1", "2"}
    (given,) = json.loads((tmp_path / "given" / "manifest.json").read_text(encoding="utf-8"))["legs"]
    assert "threads_tried" not in given


def test_trying_threads_uses_no_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(setup.ThreadChoice.__init__, "__defaults__", (lambda number: None,))
    config = small_config(tmp_path, train__threads=None, train__minutes=1.0)
    data = prepare_run_text(config, tmp_path / "cache", lambda text: None)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    world = World(Costs())
    with costing(world):
        choice = setup.try_threads(config, data, lambda text: None, OneProcess(), lambda: world.now, 0.0)
    assert choice is not None
    assert choice.tried.keys() == {1, 2}
    assert torch.equal(torch.get_rng_state(), before)


def test_the_manifest_records_how_a_timed_run_ended(tmp_path: Path) -> None:
    world = World(Costs(evaluation=0.5))
    outcome, trainer = trained(tmp_path, world)
    assert outcome is not None
    (leg,) = json.loads((trainer.run.folder / "manifest.json").read_text(encoding="utf-8"))["legs"]
    assert leg["validation_share"] == outcome.validation_share < 1
    assert leg["wall_seconds"] == pytest.approx(world.now, abs=0.01)
    state = load_checkpoint(trainer.run.checkpoint("last"), trainer.model, trainer.optimizers)
    assert state.train_seconds + state.times.other == pytest.approx(60, rel=0.05)  # the rest was predicted
