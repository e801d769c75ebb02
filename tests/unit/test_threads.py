"""One thread or all: tried before and during training, by a clock that the test sets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.base.config import Config
from glassformer.training import thread_choice
from glassformer.training.thread_choice import EVERY, TRIAL, ThreadChoice, choice_of


class Machine:
    """A processor whose step time depends on the number of threads."""

    def __init__(self, seconds: dict[int, float], warm_up: float = 0.0) -> None:
        self.seconds = seconds
        self.warm_up = warm_up
        self.now = 0.0
        self.number = 0
        self.notes = list[str]()
        self.steps: list[int] = []

    def use(self, number: int) -> None:
        self.number = number

    def step(self, number: int) -> None:
        self.now += self.seconds[self.number] + (self.warm_up if number == 0 else 0.0)
        self.steps.append(self.number)

    def choice(self) -> ThreadChoice:
        return ThreadChoice((1, 4), self.notes.append, self.use)

    def train(self, choice: ThreadChoice, until: float) -> None:
        """Take steps as the trainer does."""
        while self.now < until:
            before = self.now
            self.step(1)
            choice.stepped(self.now - before, self.now)


@pytest.mark.parametrize(("seconds", "faster"), [({1: 0.1, 4: 0.04}, 4), ({1: 0.1, 4: 2.5}, 1), ({1: 0.1, 4: 0.2}, 1)])
def test_the_faster_number_is_taken_and_said(seconds: dict[int, float], faster: int) -> None:
    machine = Machine(seconds, warm_up=0.3)
    choice = machine.choice()
    assert choice.now == 4
    choice.try_all(machine.step, 1.0, lambda: machine.now)
    assert (choice.now, machine.number) == (faster, faster)
    assert choice.tried == {number: pytest.approx(took, rel=0.2) for number, took in seconds.items()} or faster == 1
    assert f"threads: {faster}" in machine.notes[0]
    assert "1 thread 0.1 s" in machine.notes[0]


def test_a_trial_is_short_where_steps_are_long() -> None:
    machine = Machine({1: 30.0, 4: 10.0})
    choice = machine.choice()
    choice.try_all(machine.step, 1.0, lambda: machine.now)
    assert choice.now == 4
    assert machine.steps == [1, 4]  # one step each


def test_threads_are_tried_again_and_follow_the_machine() -> None:
    machine = Machine({1: 0.1, 4: 0.04})
    choice = machine.choice()
    choice.try_all(machine.step, 1.0, lambda: machine.now)
    machine.notes.clear()
    began = machine.now
    machine.train(choice, began + EVERY - 1)
    assert set(machine.steps[-100:]) == {4}
    machine.seconds[4] = 2.0  # another program uses the cores
    machine.train(choice, began + EVERY + 60)
    assert (choice.now, machine.number) == (1, 1)
    assert machine.notes == ["threads: 4 -> 1, which is now faster"]
    assert machine.steps[-300:] == [1] * 300
    machine.train(choice, began + 2 * EVERY + 60)
    assert choice.now == 1
    assert len(machine.notes) == 1  # the number stayed, so there is no message
    tried = [number for number in machine.steps[-2000:] if number == 4]
    assert 2 <= len(tried) <= 4  # a slow number is tried for a few steps


def test_a_trial_while_training_counts_no_first_step() -> None:
    choice = Machine({1: 0.1, 4: 0.1}).choice()
    choice.stepped(0.1, 0.0)
    choice.stepped(0.1, EVERY + 1)  # begins the trial of the number in use
    choice.stepped(50.0, EVERY + 51)  # its first step
    for _ in range(3):
        choice.stepped(TRIAL / 2, EVERY + 53)
    assert choice._found == {4: TRIAL / 2}


def config(**train: Any) -> Config:
    return Config.from_dict({"train": {"device": "cpu", "minutes": 1.0, "steps": None, **train}})


def test_who_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    found = choice_of(config(), lambda text: None)
    assert found is not None
    assert found.numbers == (1, 4)
    assert choice_of(config(threads=2), lambda text: None) is None
    assert choice_of(config(minutes=None, steps=9), lambda text: None) is None
    monkeypatch.setattr(thread_choice, "choose_device", lambda name: torch.device("cuda"))
    assert choice_of(config(), lambda text: None) is None


def test_a_single_thread_leaves_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert choice_of(config(), lambda text: None) is None
