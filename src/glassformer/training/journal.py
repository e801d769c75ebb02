"""What a run writes beside its checkpoints: `metrics.jsonl`, `samples.txt` and `loss.svg`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from glassformer.files import clear_disk_errors, write_text
from glassformer.runs import Run
from glassformer.training.loss_plot import loss_svg

SAMPLE = "--- step "
"""Begins each entry of `samples.txt`."""


class Journal:
    """The logs of one run, which one process writes.

    Args:
        run: where they lie.
        floor: the text's true entropy in nats per token, where it is known; drawn into the picture.
    """

    def __init__(self, run: Run, floor: float | None) -> None:
        self.run, self.floor = run, floor
        self._curve: list[tuple[int, float]] = []

    def forget_after(self, step: int) -> None:
        """Take out what a killed process wrote after the checkpoint that is gone on from."""
        if self.run.metrics_file.exists():
            lines = self.run.metrics_file.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _step_of(line) <= step]
            write_text(self.run.metrics_file, "".join(line + "\n" for line in kept))
            self._curve = [(record["step"], record["loss"]) for record in map(json.loads, kept)]
        if self.run.samples_file.exists():
            before, *samples = self.run.samples_file.read_text(encoding="utf-8").split(SAMPLE)
            early = [sample for sample in samples if _sample_step(sample) <= step]
            write_text(self.run.samples_file, SAMPLE.join([before, *early]))

    def add(self, record: dict[str, Any]) -> None:
        """A line of `metrics.jsonl`."""
        self._curve.append((record["step"], record["loss"]))
        with clear_disk_errors(self.run.metrics_file), self.run.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def add_sample(self, step: int, text: str) -> None:
        """An entry of `samples.txt`."""
        with clear_disk_errors(self.run.samples_file), self.run.samples_file.open("a", encoding="utf-8") as file:
            file.write(f"{SAMPLE}{step}\n{text}\n")

    def draw(self, evaluations: Sequence[tuple[int, float]]) -> None:
        """`loss.svg`, from the lines so far and the (step, validation loss) of evaluations."""
        picture = loss_svg(self._curve, evaluations, f"{self.run.folder.name}: loss", self.floor)
        write_text(self.run.folder / "loss.svg", picture)


def _sample_step(sample: str) -> float:
    """The step of an entry of samples; one that a kill cut short belongs to no step."""
    number = sample.partition("\n")[0]
    return int(number) if number.isdecimal() else math.inf


def _step_of(line: str) -> float:
    """The step of a line of metrics; a line that a kill cut short belongs to no step."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def read_metrics(run: Run) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`, in order; one that is half written is left out, as a run may be training."""
    if not run.metrics_file.exists():
        return []
    return [
        json.loads(line)
        for line in run.metrics_file.read_text(encoding="utf-8", errors="replace").splitlines()
        if _step_of(line) < math.inf
    ]


def read_samples(run: Run) -> list[tuple[int, str]]:
    """The entries of `samples.txt`: the step, and what was written there, its prompt included."""
    if not run.samples_file.exists():
        return []
    entries = run.samples_file.read_text(encoding="utf-8", errors="replace").split(SAMPLE)[1:]
    found = [(_sample_step(entry), entry.partition("\n")[2].removesuffix("\n")) for entry in entries]
    return [(int(step), text) for step, text in found if step < math.inf]
