"""Schedules compared with formulas, plateau with PyTorch's scheduler, and the verdicts on learning curves."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from glassformer.base.config import TrainConfig
from glassformer.training.schedules import Plateau, rate_factor
from glassformer.training.verdicts import verdict


def factors(steps: int, **settings: object) -> list[float]:
    config = TrainConfig.model_validate({"steps": steps, **settings})
    return [rate_factor(config, step, step / steps) for step in range(steps + 1)]


def test_warm_up_is_linear_and_reaches_the_peak() -> None:
    found = factors(100, schedule="constant", warmup=10)
    assert found[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert set(found[10:]) == {1.0}


def test_warm_up_takes_at_most_a_tenth_of_a_short_run() -> None:
    found = factors(50, schedule="constant", warmup=100)
    assert found[5:] == pytest.approx([1.0] * 46)
    assert 0 < found[0] < found[2] < found[4] < 1


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_the_last_rate_is_the_stated_share(schedule: str) -> None:
    found = factors(100, schedule=schedule, warmup=0, final_rate=0.1)
    assert found[0] == pytest.approx(1.0)
    assert found[-1] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(found))


def test_cosine_is_halfway_in_the_middle_and_wsd_is_flat_before_its_decay() -> None:
    assert factors(100, schedule="cosine", warmup=0, final_rate=0.0)[50] == pytest.approx(0.5)
    wsd = factors(100, schedule="wsd", warmup=0, final_rate=0.0, decay_share=0.2)
    assert wsd[:81] == pytest.approx([1.0] * 81)
    assert wsd[90] == pytest.approx(0.5)


def test_noam_peaks_at_the_end_of_warm_up() -> None:
    found = factors(400, schedule="noam", warmup=100)
    assert found[99] == max(found) == pytest.approx(1.0)
    assert found[399] == pytest.approx(math.sqrt(100 / 400))


def test_plateau_equals_torchs() -> None:
    losses = [3.0, 2.0, 2.1, 2.2, 2.05, 1.9, 1.95, 1.95, 1.95, 1.8, 1.8, 1.8, 1.8]
    config = TrainConfig(schedule="plateau", plateau_factor=0.5, plateau_patience=2)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2, threshold=0.0)
    ours = Plateau()
    for loss in losses:
        theirs.step(loss)
        ours = ours.after(loss, config)
        assert ours.factor == optimizer.param_groups[0]["lr"]
    assert ours.factor < 1


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        (
            [2.0, 1.8, 1.7, 1.9, 2.0],
            "overfitting: the validation loss has risen since step 300, the best; train again, with another --out, on "
            "more text or with a higher --model.dropout_residual",
        ),
        ([2.0, 1.8, 1.7, 1.6, 1.5], "still improving"),
        ([2.0, 1.501, 1.5, 1.5, 1.499], "levelled off"),
        ([4.17, 4.17, 4.16, 4.17], "not learning"),
        ([4.17, 4.16, 4.12], "still improving"),  # near ln V, as in a short run, but on its way down
        ([4.17], "too few"),
    ],
)
def test_learning_curves_get_the_right_verdict(losses: list[float], wanted: str) -> None:
    assert verdict([(100 * (i + 1), loss) for i, loss in enumerate(losses)], 65).startswith(wanted)
