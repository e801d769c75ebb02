"""A run folder may be given as a string or as a path everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.base.errors import GlassError
from glassformer.evaluation.probes.probe import ProbeRequest, probe_run
from glassformer.inspection.heads.of_run import heads_of_run
from glassformer.runs.folder import open_run
from glassformer.runs.opening import OpenedRun
from glassformer.training.loop import train
from tests.property.trainers import small_trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small trained run."""
    trainer = small_trainer(tmp_path_factory.mktemp("folders"))
    train(trainer)
    return trainer.run.folder


def test_a_string_names_the_same_run_as_a_path(folder: Path) -> None:
    assert open_run(str(folder)) == open_run(folder)
    ways: list[Callable[[str | Path], str]] = [
        lambda place: OpenedRun.load(place).text_model.config.to_toml(),
        lambda place: str(heads_of_run(OpenedRun.load(place)).facts()),
        lambda place: str(probe_run(ProbeRequest(place, ["induction"], size=20)).facts()),
    ]
    for way in ways:
        assert way(str(folder)) == way(folder)


def test_a_string_that_names_no_run_is_refused_in_two_lines(folder: Path) -> None:
    for open_it in (open_run, OpenedRun.load):
        with pytest.raises(GlassError, match="there is no run at"):
            open_it(f"{folder}x")
        with pytest.raises(GlassError, match="is not a run"):
            open_it(str(folder.parent))
