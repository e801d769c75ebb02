"""Fixtures with texts and finished runs: a folder that is copied for each test, and a shared one with all tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.app.cli.main import main
from tests.journey.damage import RUN, make_text, train
from tests.journey.task_runs import RUNS, STEPS, TINY, make_runs
from tests.trained import copy_runs, trained


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text and a finished run, which the fixture `here` copies."""
    folder = tmp_path_factory.mktemp("world")
    make_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(train("proverbs.txt", out=str(RUN))) == 0
    return folder


@pytest.fixture
def here(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of `world` that a test may damage; it is also the current folder."""
    copy_runs(world, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def task_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shared folder with all files of `task_files` and a run of each task; tests add files but damage none."""
    return trained(tmp_path_factory.mktemp("tasks"), "tasks", [TINY, STEPS, RUNS], make_runs)
