"""Folders with texts and finished runs, made once: one that is copied for each test to spoil, one with all tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.app.cli.main import main
from tests.journey.damage import RUN, make_text, train
from tests.journey.task_runs import RUNS, STEPS, TINY, make_runs
from tests.trained import copy_runs, trained


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that is copied."""
    folder = tmp_path_factory.mktemp("world")
    make_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(train("proverbs.txt", out=str(RUN))) == 0
    return folder


@pytest.fixture
def here(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, and the current folder."""
    copy_runs(world, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def task_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of `task_files`, and a run of each task; tests add to it and spoil nothing."""
    return trained(tmp_path_factory.mktemp("tasks"), "tasks", [TINY, STEPS, RUNS], make_runs)
