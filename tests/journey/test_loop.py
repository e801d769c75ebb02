"""Few calls lie between the command and a backward pass of training, and the training loop fits on a screen.

The runs here are limited by steps. A run limited by minutes first makes other training steps, with models that it
discards, to measure the speed of thread counts and model sizes.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import glassformer
from glassformer.app.cli.main import main
from glassformer.training import loop
from tests.journey.damage import train
from tests.property.trainers import text_file

PACKAGE = Path(glassformer.__file__).parent
MOST_FRAMES = 5
MOST_FILES = 3
MOST_LINES = 60


def own_frames(frame: FrameType | None) -> list[tuple[str, str]]:
    """Return (file, function) of the package's frames in a call stack, outermost first; `frame` is the innermost."""
    found: list[tuple[str, str]] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            found.append((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]


@pytest.mark.parametrize("resumed", [False, True])
def test_few_frames_lie_between_the_command_and_the_gradient(
    resumed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = train("proverbs.txt", out="run")
    if resumed:
        assert main(words) == 0
        words = ["train", "--resume", "--out", "run", "--steps", "4"]
    backward = torch.Tensor.backward
    seen: list[list[tuple[str, str]]] = []

    def watched(self: torch.Tensor, *arguments: Any, **named: Any) -> None:
        seen.append(own_frames(sys._getframe(1)))
        backward(self, *arguments, **named)

    monkeypatch.setattr(torch.Tensor, "backward", watched)
    assert main(words) == 0
    frames = seen[0]
    with capsys.disabled():
        print("\n" + " -> ".join(f"{file}: {function}()" for file, function in frames))
    assert frames[0] == ("app/cli/main.py", "main")
    assert ("training/loop.py", "train") in frames
    assert len(frames) <= MOST_FRAMES, frames
    assert len({file for file, _ in frames}) <= MOST_FILES, frames
    assert all(way == frames for way in seen)


def test_the_loop_with_the_passes_of_a_step_fits_a_screen() -> None:
    parts = (loop.train, loop.compute_gradients, loop.accumulate_gradients)
    lines = [line for part in parts for line in inspect.getsource(part).splitlines()]
    assert len(lines) <= MOST_LINES


def test_the_loop_names_what_it_does_in_order() -> None:
    source = "".join(inspect.getsource(part) for part in (loop.train, loop.compute_gradients))
    names = (
        "set_rate(",
        "compute_gradients(",
        "gradients.finite",
        ".clip(",
        "optimizer.step()",
        "evaluate()",
        "write_sample()",
        ".log()",
        "save_checkpoint(",
    )
    places = [source.index(name) for name in names]
    assert places == sorted(places)
