"""A server with a backend that is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from glassformer.app.cli.main import main
from glassformer.base.packages import install_command


@pytest.mark.parametrize("backend", ["onnxruntime", "onnxruntime-int8"])
def test_a_missing_backend_is_refused_before_the_server_starts(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find(name))
    assert main(["serve", str(tmp_path), "--no-open", "--port", "0", "--backend", backend]) == 2
    problem, remedy = capsys.readouterr().err.splitlines()
    assert problem == "generation with onnxruntime needs the package onnxruntime"
    assert remedy == install_command("backends")
