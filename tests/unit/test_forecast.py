"""The loss forecast: its formula is the fitted one, it is monotonic, and it covers runs outside the fit."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from glassformer.evaluation.simple_predictors import FastBaseline
from glassformer.runs.run_text import prepare_run_text
from glassformer.training import forecast
from glassformer.training.forecast import RunFacts, loss_band
from glassformer.training.plan import plan_run
from tests.property.trainers import small_config

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KNOWN = RunFacts(3.3, 1.6, 800_000, 1000, 2e6, 1_000_000, 67, True)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("loss_band", BENCHMARKS / "loss_band.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_coefficients_equal_those_of_the_fit(bench: Any) -> None:
    runs = bench.read(bench.RESULTS)
    assert list(forecast.WEIGHTS) == list(KNOWN.features())
    assert list(forecast.WEIGHTS.values()) == pytest.approx(bench.weights_of(runs).tolist(), abs=1e-4)
    assert pytest.approx(bench.half_width_of(runs), abs=1e-3) == forecast.HALF_WIDTH
    largest = max(6 * known.parameters * known.tokens for _, known, _ in runs)
    assert pytest.approx(largest, rel=0.01) == forecast.LARGEST


def test_75_to_95_percent_of_unseen_runs_are_inside_the_band(bench: Any) -> None:
    inside = bench.inside_unseen(bench.read(bench.RESULTS))
    assert len(inside) >= 50
    assert 0.75 <= np.mean(inside) <= 0.95


def test_a_forecast_is_between_the_floor_and_the_unigram_loss() -> None:
    assert KNOWN.floor == pytest.approx(1.6 - forecast.BELOW * 1.7)
    assert KNOWN.loss_at(0.0) == pytest.approx(3.3)
    assert KNOWN.loss_at(-100.0) == pytest.approx(KNOWN.floor)
    assert KNOWN.loss_at(math.log(0.5)) == pytest.approx((3.3 + KNOWN.floor) / 2)


def test_no_forecast_is_below_zero() -> None:
    repetitive = replace(KNOWN, ngram=0.2)
    assert repetitive.floor == 0.0
    assert repetitive.loss_at(-3.0) == pytest.approx(3.3 * math.exp(-3.0))


def test_more_steps_and_parameters_lower_the_forecast() -> None:
    def left(known: RunFacts) -> float:
        return sum(forecast.WEIGHTS[name] * value for name, value in known.features().items())

    assert left(replace(KNOWN, steps=4000, tokens=8e6)) < left(KNOWN)
    assert left(replace(KNOWN, parameters=4_000_000)) < left(KNOWN)
    assert left(replace(KNOWN, muon=False)) > left(KNOWN)


def rungs(unigram: float, ngram: float) -> list[FastBaseline]:
    return [
        FastBaseline("uniform", math.log(67), None, ""),
        FastBaseline("unigram", unigram, None, ""),
        FastBaseline("5-gram", ngram, None, ""),
    ]


def test_there_is_no_band_outside_the_range_of_the_fit(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    plan = plan_run(config, prepare_run_text(config, tmp_path / "cache", lambda text: None), None)
    band = loss_band(plan, rungs(3.0, 2.0))
    assert band is not None
    assert 0 < band.low < band.middle
    assert band.middle <= band.high <= math.log(plan.vocab_size)
    assert loss_band(replace(plan, steps=None), rungs(3.0, 2.0)) is None
    assert loss_band(replace(plan, steps=10**12), rungs(3.0, 2.0)) is None  # larger than any run of the fit
    assert loss_band(plan, rungs(3.0, 3.0)) is None
    assert loss_band(plan, rungs(3.0, 2.0)[:2]) is None
    other = config.replace(
        train={**config.train.model_dump(), "task": "masked"}, model={**config.model.model_dump(), "family": "encoder"}
    )
    assert loss_band(replace(plan, config=other), rungs(3.0, 2.0)) is None
