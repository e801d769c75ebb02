"""Several processes give the results of one process: gradients, losses, evaluations, even if their number changes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.errors import GlassError
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from glassformer.training.parallel.processes import OneProcess
from tests.journey.damage import edit
from tests.property.parallel_worker import (
    CURVES,
    GRADIENTS,
    evaluation,
    finished,
    gradients,
    prepare,
    start_all,
    trained,
)
from tests.property.trainers import record_files, resumed

pytestmark = pytest.mark.thorough

KINDS = ("replicas", "shards")
WORLDS = (2, 3)
CLOSE = {"adamw": 1e-5, "muon": 1e-3}
"""Largest allowed difference from the losses of one process, by optimizer: Muon orthogonalizes in bfloat16."""


@dataclass
class Found:
    """Results of a single process (`alone`), and of each process in groups of two and three (`together`)."""

    folder: Path
    alone: dict[str, Any]
    together: dict[int, list[dict[str, Any]]]

    def everywhere(self, key: str) -> list[Any]:
        """Return the results of every process of every group."""
        return [found[key] for world in WORLDS for found in self.together[world]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("parallel")
    alone: dict[str, Any] = {}
    for number, stepper in enumerate(prepare(folder)):
        alone[f"gradients {number}"] = gradients(stepper)
        alone[f"evaluation {number}"] = evaluation(folder, stepper, OneProcess())
    for name, changes in CURVES.items():
        trained(folder, f"alone-{name}", OneProcess(), **changes)
    return Found(folder, alone, start_all(WORLDS, folder))


def losses(run: Path) -> list[tuple[float, float]]:
    """Return the training loss of every step, and its validation loss (0 if there is none)."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 9))
    return [(line["loss"], line.get("validation_loss", 0.0)) for line in lines]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(GRADIENTS)))
def test_gradients_of_several_processes_equal_those_of_one(found: Found, kind: str, number: int) -> None:
    alone = found.alone[f"gradients {number}"]
    assert alone["targets"] > 0
    for ours in found.everywhere(f"{kind} gradients {number}"):
        assert ours.keys() == alone.keys()
        for name, gradient in alone.items():
            torch.testing.assert_close(ours[name], gradient, atol=1e-6, rtol=1e-6, msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(GRADIENTS)))
def test_evaluation_gives_the_same_number(found: Found, kind: str, number: int) -> None:
    for ours in found.everywhere(f"{kind} evaluation {number}"):
        assert ours == found.alone[f"evaluation {number}"]  # bit for bit, because rows are grouped alike


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CURVES)
def test_the_loss_curve_equals_that_of_one_process(found: Found, name: str, kind: str, world: int) -> None:
    alone, ours = (losses(found.folder / run) for run in (f"alone-{name}", f"{kind}-{name}-{world}"))

    torch.testing.assert_close(torch.tensor(ours), torch.tensor(alone), atol=CLOSE[name], rtol=0)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CURVES)
def test_any_number_of_processes_resumes_a_sharded_run_of_two(found: Found, name: str, kind: str, world: int) -> None:
    alone, ours = (losses(found.folder / run) for run in (f"alone-{name}", f"{kind}-{world}-from-{name}"))
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(alone), atol=CLOSE[name], rtol=0)


@pytest.mark.parametrize("name", CURVES)
def test_one_process_resumes_a_sharded_run_of_two(found: Found, name: str) -> None:
    run = f"broken-{name}"
    assert Run(found.folder / run).checkpoint("last").name == "step-000005"
    finished(resumed(found.folder, run))
    alone, ours = (losses(found.folder / each) for each in (f"alone-{name}", run))
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(alone), atol=CLOSE[name], rtol=0)


def test_one_process_resumes_a_sharded_run_without_steps(found: Found) -> None:
    trainer = resumed(found.folder, "shards-bad-2")
    assert trainer.run.checkpoint("last").name == "step-000000"
    assert trainer.state.step == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_non_finite_loss_in_one_process_stops_all(found: Found, kind: str) -> None:
    for world in WORLDS:
        first, *others = (each[f"{kind} refusal"] for each in found.together[world])
        assert first.startswith("GlassError step 1 was not taken: the loss is nan, and the first non-finite tensor is")
        assert "the output of stack.blocks.1.feedforward.down" in first
        assert all(other == first.replace("GlassError", "ReportedElsewhereError") for other in others)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("case", "problem"), [("full disk", "the disk is full"), ("second start", "another process is training in")]
)
def test_an_error_of_the_writing_process_is_raised_in_all(found: Found, kind: str, case: str, problem: str) -> None:
    for world in WORLDS:
        first, *others = (each[f"{kind} {case}"] for each in found.together[world])
        assert first.startswith(f"GlassError {problem}")
        assert all(other == first.replace("GlassError", "ReportedElsewhereError") for other in others)


@pytest.mark.parametrize("kind", KINDS)
def test_processes_with_other_settings_are_refused(found: Found, kind: str) -> None:
    for world, ranks in ((2, "rank 1"), (3, "rank 1, 2")):
        first, *others = (each[f"{kind} differing"] for each in found.together[world])
        problem, remedy = first.splitlines()
        assert problem == f"GlassError the processes of this run differ: model.width is 32 (rank 0), 64 ({ranks})"
        assert remedy == "Give the same options on every host, and install the same versions."
        assert all(other == first.replace("GlassError", "ReportedElsewhereError") for other in others)


def test_a_sharded_checkpoint_has_a_file_for_each_process_and_whole_weights(found: Found) -> None:
    for world in WORLDS:
        checkpoint = Run(found.folder / f"shards-adamw-{world}").checkpoint("last")
        shards = [f"optimizer-{number}-of-{world}.safetensors" for number in range(1, world + 1)]
        assert sorted(path.name for path in checkpoint.iterdir()) == [
            "manifest.json",
            "model.safetensors",
            *shards,
            "state.json",
        ]
        ours = load_tensors(checkpoint / "model.safetensors")
        alone = load_tensors(Run(found.folder / "alone-adamw").checkpoint("last") / "model.safetensors")
        assert ours.keys() == alone.keys()
        for name, value in alone.items():
            torch.testing.assert_close(ours[name], value, atol=1e-5, rtol=0)


def test_a_damaged_shard_is_detected(found: Found) -> None:
    run = Run(found.folder / "shards-muon-2")
    part = run.checkpoint("last") / "optimizer-2-of-2.safetensors"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(GlassError, match="truncated"):
        run.checkpoint("last")


@pytest.mark.parametrize(("was", "now"), [("adamw", "muon"), ("muon", "adamw")])
def test_sharded_state_of_another_optimizer_is_refused(found: Found, tmp_path: Path, was: str, now: str) -> None:
    shutil.copytree(found.folder / f"broken-{was}", tmp_path / "run")
    edit("run/config.toml", f'optimizer = "{was}"', f'optimizer = "{now}"')(tmp_path)
    record_files(tmp_path / "run")
    with pytest.raises(GlassError, match=r"the optimizer state in .* does not fit this run's settings"):
        resumed(tmp_path)
