"""Hard-concrete gates: closed forms equal averages of samples, and samples have gradients."""

from __future__ import annotations

import math

import pytest
import torch

from glassformer.inspection.pruning.hard_concrete import deterministic_gates, open_probability, sample

DRAWS = 200_000
LOGS = (-3.0, -1.0, 0.0, 0.7, 2.5)


def whole_probability(log_alpha: torch.Tensor) -> torch.Tensor:
    """Return P(g = 1), which by symmetry is P(g = 0) at the opposite ln α."""
    return 1 - open_probability(-log_alpha)


@pytest.mark.parametrize("log_alpha", LOGS)
def test_closed_forms_equal_sample_averages(log_alpha: float) -> None:
    """The fraction of samples is within three standard deviations of the probability."""
    log = torch.tensor(log_alpha, dtype=torch.float64)
    drawn = sample(log.expand(DRAWS), torch.Generator().manual_seed(11))
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    for expected, seen in ((open_probability(log), drawn > 0), (whole_probability(log), drawn == 1)):
        p = float(expected)
        assert abs(float(seen.double().mean()) - p) < 3 * math.sqrt(p * (1 - p) / DRAWS)


def test_known_values() -> None:
    """Computed by hand from β = 0.33, γ = -0.1, ζ = 1.1."""
    zero = torch.tensor(0.0, dtype=torch.float64)
    assert float(open_probability(zero)) == pytest.approx(0.68812, abs=1e-5)
    assert float(whole_probability(zero)) == pytest.approx(0.31188, abs=1e-5)
    edge = math.log(11)  # sigmoid = 11 / 12, stretched to 1
    found = deterministic_gates(
        torch.tensor([-edge - 1e-3, -edge + 1e-3, 0.0, edge - 1e-3, edge + 1e-3], dtype=torch.float64)
    )
    assert found[0] == 0
    assert found[4] == 1
    assert float(found[2]) == pytest.approx(0.5)
    assert 0 < found[1] < found[2] < found[3] < 1


def test_samples_come_from_the_generator_and_have_gradients() -> None:
    log = torch.zeros(53, requires_grad=True)
    first, again = (sample(log, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, sample(log, torch.Generator().manual_seed(6)))
    first.sum().backward()
    assert log.grad is not None
    inside = (first > 0) & (first < 1)
    assert inside.any()
    assert torch.equal(log.grad > 0, inside)
