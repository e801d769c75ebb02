"""How a process reads the environment of torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.base.config import Config
from glassformer.base.errors import GlassError, ReportedElsewhereError
from glassformer.training.parallel.joining import (
    begun_by_this_job,
    is_rank_zero,
    job,
    joined,
    report_errors_once,
)
from glassformer.training.parallel.processes import OneProcess
from tests.property.trainers import small_config, small_trainer


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert job() is None
    assert is_rank_zero()
    with joined(Config.from_dict({"train": {"shard": True}})) as processes:
        assert isinstance(processes, OneProcess)


def test_the_first_process_of_each_host_prints_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank, local_rank, kind in (("0", "0", GlassError), ("2", "0", GlassError), ("3", "1", ReportedElsewhereError)):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", local_rank)
        with pytest.raises(GlassError) as caught, report_errors_once():
            raise GlassError("wrong", "right")
        assert type(caught.value) is kind


def test_only_the_job_that_started_a_run_resumes_it_automatically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tmp_path)
    assert not begun_by_this_job(tmp_path / "run", config)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "mine")
    small_trainer(tmp_path)
    assert begun_by_this_job(tmp_path / "run", config)
    with pytest.raises(GlassError, match="with other settings"):
        begun_by_this_job(tmp_path / "run", small_config(tmp_path, train__seed=1))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    assert not begun_by_this_job(tmp_path / "run", config)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert not begun_by_this_job(tmp_path / "run", config)


def test_snapshots_of_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GlassError, match="no process has the whole model"):
        small_config(tmp_path, train__shard=True, train__snapshots=4)
