"""`glass doctor` through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.journey.commands import here
from tests.journey.task_runs import refused
from tests.parity.written_runs import make_run


def test_doctor_reports_the_system_and_agreement(tmp_path: Path) -> None:
    done = here("doctor", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in (
        "python ",
        f"torch {torch.__version__}",
        "usable cores",
        "C++ compiler",
        "cpu: ",
        "sentencepiece",
        "GiB",
        "one thread: float32 100 GFLOP/s, bfloat16 1 GFLOP/s; stored in ",
        "train.precision = auto means float32: bfloat16 is 0.01 times as fast as float32 here",
    ):
        assert word in done.stdout
    assert "for a small language model (reduced: layers 4 -> 2, context 256 -> 64)" in done.stdout
    assert "All agree (" in done.stdout


def test_doctor_uses_the_settings_of_a_run_or_a_recipe(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "classify", positions="relative", layers=3)
    for name, cut in (
        ("run", ["layers 3 -> 2"]),
        ("serve", ["layers 4 -> 2", "hidden 704 -> 512", "context 256 -> 64"]),
    ):
        done = here("doctor", name, "--json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert facts["ok"]
        assert facts["cut"] == cut
        assert facts["settings"] == name
        assert facts["machine"]["versions"]["torch"] == torch.__version__
        assert {"name", "device", "logits", "limit", "gradients", "gradient_limit", "ok"} <= set(facts["checks"][0])


def test_a_wrong_device_is_reported_with_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = F.scaled_dot_product_attention

    def wrong(q: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        return right(q * 1.001 if q.dtype == torch.float32 else q, *rest, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", wrong)
    done = here("doctor", folder=tmp_path)
    assert done.returncode == 1
    assert "NOT ALL AGREE" in done.stdout
    assert done.stdout.count("TOO FAR") >= 2


def test_missing_runs_and_devices_are_named(tmp_path: Path) -> None:
    assert refused("doctor", "servo", folder=tmp_path) == (
        "servo is neither a run folder nor a recipe",
        "Did you mean serve?",
    )
    for name in ("tpu", "xpu"):  # PyTorch knows the second name, but it is not supported here
        assert refused("doctor", "--device", name, folder=tmp_path)[0] == f"there is no device '{name}'"
