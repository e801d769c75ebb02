"""The built-in studies, and the measured cost of a pass."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.app.cli.compare import _chosen_grid, add_arguments
from glassformer.app.cli.main import main
from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.experiments import cost, runner
from glassformer.experiments.cost import MeasuredPass, attention_pass, feedforward_pass, fit_power, saved_bytes_of
from glassformer.experiments.grid import Grid
from glassformer.experiments.study import load_study, study_names
from glassformer.model.transformer import FeedForward

SMALL = {"T": (4, 8, 16), "D": (8, 16, 32), "L": (1, 2, 3)}


def chosen(*words: str) -> Grid:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return _chosen_grid(parser.parse_args(words))


@pytest.mark.parametrize("name", study_names())
def test_every_study_is_a_valid_grid(name: str) -> None:
    grid = chosen("--study", name)
    study = load_study(name)
    assert study.question.endswith("?")
    assert len(grid.cells) >= 2
    assert grid.seeds == 3
    for cell in grid.cells:
        assert cell.config.train.threads == 1
        assert cell.config.train.evaluate_every < (cell.config.train.steps or 0)  # the picture has a curve


def test_the_tutorials_questions_have_studies() -> None:
    asked = {
        "positions-decoder",
        "positions-encoder",
        "causal-mask-removed",
        "norm-order",
        "residuals-removed",
        "heads",
        "tied",
        "learning-rate",
        "width",
        "depth",
        "context",
        "dropout",
    }
    assert asked <= set(study_names())
    assert {cell.config.train.task for cell in chosen("--study", "positions-encoder").cells} == {"masked"}
    norms = [(cell.config.model.norm_order, cell.config.train.warmup) for cell in chosen("--study", "norm-order").cells]
    assert norms == [("pre", 60), ("pre", 0), ("post", 60), ("post", 0)]


def test_a_study_accepts_a_text_and_changes() -> None:
    config = chosen("random", "--study", "heads", "--steps", "9", "--set", "model.layers=1").cells[0].config
    assert (config.data.source, config.tokenizer.kind) == ("random", "characters")  # as suits the corpus
    assert (config.train.steps, config.model.layers, config.model.width) == (9, 1, 64)
    assert chosen("--study", "heads", "--minutes", "2").cells[0].config.train.steps is None
    for words, problem in (
        (["--study", "head"], "unknown study 'head'"),
        (["--study", "heads", "--vary", "model.layers=1,2"], "was given with --vary"),
        (["--study", "heads", "--set", "model.heads=2"], "is varied and also set"),
    ):
        with pytest.raises(GlassError, match=problem):
            chosen(*words)


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["studies"].keys() == {*study_names(), "cost"}


def test_a_process_that_dies_affects_only_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dies"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.stdin.readline()\nsys.exit(5)\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(runner.sys, "executable", str(program))
    grid = chosen("--study", "tied", "--seeds", "1")
    (tmp_path / "results").mkdir()
    said: list[str] = []
    runner.Pool(tmp_path, grid.jobs(), 1, said.append).train()
    assert [result["failed"] for result in runner.read_results(tmp_path, grid).values()] == [
        "its process ended with code 5"
    ] * 2
    assert len(said) == 3


# ---- cost


def test_an_exponent_is_fitted_with_its_interval() -> None:
    sizes = [3, 5, 11, 17]
    exact = fit_power(sizes, [7 * size**1.5 for size in sizes])
    assert (exact.power, exact.scale) == (pytest.approx(1.5), pytest.approx(7))
    assert exact.margin == pytest.approx(0, abs=1e-12)
    noisy = np.array([20.0, 61.0, 250.0, 590.0])
    slope, variance = np.polyfit(np.log(sizes), np.log(noisy), 1, cov=True)
    found = fit_power(sizes, noisy.tolist())
    assert found.power == pytest.approx(slope[0])
    assert found.margin == pytest.approx(4.302653 * np.sqrt(variance[0, 0]), rel=1e-3)  # Student's t, 4 - 2 degrees
    assert fit_power([1, 2], [3, 6]).margin is None


def test_saved_bytes_of_a_feedforward_layer_are_exact() -> None:
    sizes = {"T": 13, "D": 24, "L": 1}
    hidden = 4 * 24
    assert saved_bytes_of(feedforward_pass(sizes)) == 4 * 13 * (
        24 + 2 * hidden
    )  # input, before and after the activation
    layer = FeedForward(ModelConfig(width=24, heads=4))
    x = torch.randn(1, 7, 24)  # (B, T, D) asks for no gradient, yet the weights of `up` need it
    assert saved_bytes_of(MeasuredPass(lambda: layer(x), layer)) == 4 * 7 * (24 + 2 * hidden)


def test_only_explicit_attention_saves_quadratic_memory() -> None:
    fused, explicit = (
        [saved_bytes_of(attention_pass({"T": T, "D": 8}, way)) for T in (64, 128)] for way in (False, True)
    )
    assert fused[1] == pytest.approx(2 * fused[0], rel=0.01)
    assert explicit[1] > 3.5 * explicit[0]


@pytest.mark.thorough
def test_the_cost_study_reports_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "SIZES", SMALL)
    monkeypatch.setattr(cost, "REPEATS", 1)
    threads = torch.get_num_threads()
    assert main(["compare", "--study", "cost", "--out", str(tmp_path / "cost"), "--json"]) == 0
    laws = json.loads(capsys.readouterr().out)["laws"]
    assert len(laws) == 9
    assert all(min(law["seconds"]) > 0 for law in laws)
    law = next(law for law in laws if (law["part"], law["against"]) == ("feed-forward", "D"))
    assert law["bytes_kept"] == [4 * 256 * 9 * width for width in SMALL["D"]]
    assert law["memory_power"] == pytest.approx(1)
    assert torch.get_num_threads() == threads
    page = (tmp_path / "cost" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "O(T^2 D)" in page
    (tmp_path / "cost" / "mine.txt").write_text("x", encoding="utf-8")
    assert main(["compare", "--study", "cost", "--out", str(tmp_path / "cost")]) == 2
    assert "it contains mine.txt" in capsys.readouterr().err
