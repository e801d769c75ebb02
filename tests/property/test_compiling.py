"""A compiled step computes the same as an uncompiled step; a compiled run resumes as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.errors import GlassError
from glassformer.tasks.losses import TrainingLoss
from glassformer.training.compiling import find_compiler
from glassformer.training.loop import compute_gradients, train
from tests.property.trainers import killed_after, last_weights, resumed, same, small_trainer

pytestmark = pytest.mark.thorough


@pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler on this machine")
def test_a_compiled_run_trains_the_same_and_resumes(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "train__steps": 6,
        "train__save_every": 3,
        "train__evaluate_every": 3,
        "model__dropout_residual": 0.0,
        "model__layers": 1,
    }
    plain = small_trainer(tmp_path, "plain", **options)
    fast = small_trainer(tmp_path, "fast", **options, train__compile=True)
    assert not isinstance(fast.stepper.loss, TrainingLoss)
    assert isinstance(plain.stepper.loss, TrainingLoss)
    first = compute_gradients(plain.stepper, 0)
    second = compute_gradients(fast.stepper, 0)
    assert second.loss == pytest.approx(first.loss, abs=1e-6)
    for one, other in zip(plain.model.parameters(), fast.model.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, atol=1e-6, rtol=1e-5)
    train(fast)
    again = small_trainer(tmp_path, "again", **options, train__compile=True)
    killed_after(again, 3)
    later = resumed(tmp_path, "again")
    train(later)
    assert same(last_weights(fast), last_weights(later))


def test_compilation_without_a_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(GlassError, match="no compiler for cpu") as caught:
        small_trainer(tmp_path, train__compile=True)
    assert "train.compile = false" in caught.value.remedy
    assert not (tmp_path / "run").exists()  # the corrected command can be run again
