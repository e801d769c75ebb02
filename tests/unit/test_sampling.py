"""Sampling: each setting follows its definition, in the stated order, with ties broken by id."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import SampleConfig
from glassformer.generation.sampling import (
    exponential_noise,
    probabilities,
    ranked,
    row_probabilities,
    sample_token,
    sample_tokens,
)

PLAIN = SampleConfig(temperature=1.0)
LOGITS = st.lists(st.integers(-6, 6).map(lambda n: n / 2), min_size=1, max_size=13)  # ties are common


def softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    parts = [math.exp(score - top) for score in scores]
    return [part / sum(parts) for part in parts]


def by_hand(scores: list[float], config: SampleConfig, previous: list[int]) -> list[float]:
    """Return the probabilities by applying the definitions one after the other, in plain Python."""
    theta = config.repetition_penalty
    scores = [
        (score / theta if score > 0 else score * theta) if id in previous else score for id, score in enumerate(scores)
    ]
    order = sorted(range(len(scores)), key=lambda id: (-scores[id], id))
    if config.temperature == 0:
        return [float(id == order[0]) for id in range(len(scores))]
    shares = softmax([score / config.temperature for score in scores])
    kept = order[: config.top_k]
    total = math.fsum(shares[id] for id in kept)
    if config.top_p is not None:
        nucleus: list[int] = []
        while not nucleus or math.fsum(shares[id] for id in nucleus) / total < config.top_p - 1e-9:
            nucleus.append(kept[len(nucleus)])
            if len(nucleus) == len(kept):
                break
        kept = nucleus
    if config.min_p is not None:
        kept = [id for id in kept if shares[id] >= config.min_p * shares[kept[0]]]
    total = math.fsum(shares[id] for id in kept)
    return [shares[id] / total if id in kept else 0.0 for id in range(len(scores))]


@settings(max_examples=200)
@given(
    scores=LOGITS,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.sampled_from([None, 1, 2, 3, 7, 1000]),
    top_p=st.sampled_from([None, 1e-6, 0.2, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([None, 0.07, 0.33, 1.0]),
    penalty=st.sampled_from([1.0, 1.3, 5.0]),
    data=st.data(),
)
def test_probabilities_follow_the_definitions(
    scores: list[float],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    penalty: float,
    data: st.DataObject,
) -> None:
    previous = data.draw(st.lists(st.integers(0, len(scores) - 1), max_size=9))
    config = SampleConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty)
    result = probabilities(torch.tensor(scores), config, previous)
    # float32 halves are exact, so ties in the input are ties here; the penalty acts in float64 on both sides
    torch.testing.assert_close(result, torch.tensor(by_hand(scores, config, previous), dtype=torch.float64))
    assert result.dtype == torch.float64
    assert abs(result.sum().item() - 1) < 1e-12


def test_temperature_zero_takes_the_lowest_id_of_equals() -> None:
    result = probabilities(torch.tensor([1.0, 3.0, 3.0, 2.0]), SampleConfig(temperature=0))
    assert result.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [1e-300, 1e-12, 1e12])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    result = probabilities(torch.tensor([80.0, -80.0, 80.0]), SampleConfig(temperature=temperature))
    expected = [1 / 3] * 3 if temperature > 1 else [0.5, 0.0, 0.5]
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=0)


def test_top_k_keeps_exactly_k_of_equals_lowest_ids_first() -> None:
    result = probabilities(torch.zeros(7), SampleConfig(temperature=1, top_k=3))
    assert result.nonzero().flatten().tolist() == [0, 1, 2]


def test_top_p_keeps_the_smallest_set_and_never_nothing() -> None:
    logits = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    kept = {
        p: probabilities(logits, SampleConfig(temperature=1, top_p=p)).nonzero().flatten().tolist()
        for p in (1e-9, 0.5, 0.51, 0.8, 0.81, 1.0)
    }
    assert kept == {1e-9: [1], 0.5: [1], 0.51: [1, 2], 0.8: [1, 2], 0.81: [0, 1, 2], 1.0: [0, 1, 2]}


def test_min_p_keeps_tokens_that_are_near_the_likeliest_one() -> None:
    logits = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    kept = {
        p: probabilities(logits, SampleConfig(temperature=1, min_p=p)).nonzero().flatten().tolist()
        for p in (0.39, 0.41, 0.59, 0.61, 1.0)
    }
    assert kept == {0.39: [0, 1, 2], 0.41: [1, 2], 0.59: [1, 2], 0.61: [1], 1.0: [1]}


def test_the_penalty_makes_seen_tokens_less_likely_whatever_their_sign_and_only_once() -> None:
    logits = torch.tensor([2.0, -2.0, 0.0, 1.0])
    config = SampleConfig(temperature=1, repetition_penalty=2)
    result = probabilities(logits, config, [0, 1, 2, 1, 1, 0])
    expected = softmax([1.0, -4.0, 0.0, 1.0])
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64))


def test_the_order_is_penalty_temperature_top_k_top_p() -> None:
    """For each pair of adjacent steps, test a case in which the reverse order would keep other tokens."""
    penalty_first = probabilities(
        torch.tensor([3.0, 2.0, 1.0]), SampleConfig(temperature=1, top_k=1, repetition_penalty=4), [0]
    )
    assert penalty_first.tolist() == [0, 1, 0]
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    temperature_first = probabilities(logits, SampleConfig(temperature=0.1, top_p=0.6))
    assert temperature_first.tolist() == [1, 0, 0]
    top_k_first = probabilities(logits, SampleConfig(temperature=1, top_k=2, top_p=0.6))  # .5 / .8 is enough
    assert top_k_first.tolist() == [1, 0, 0]


def test_rows_do_not_influence_each_other() -> None:
    logits = torch.randn(5, 101, generator=torch.Generator().manual_seed(0))
    config = SampleConfig(temperature=0.7, top_k=40, top_p=0.9, repetition_penalty=1.2)
    previous = [[1], [2, 3], [4], [100, 100, 5], []]
    together = row_probabilities(logits, config, previous)
    for row in range(5):
        assert torch.equal(together[row], probabilities(logits[row], config, previous[row]))


@settings(max_examples=100)
@given(scores=LOGITS, top_k=st.sampled_from([None, 1, 3]), seed=st.integers(0, 10_000))
def test_only_possible_tokens_are_sampled(scores: list[float], top_k: int | None, seed: int) -> None:
    shares = probabilities(torch.tensor(scores), SampleConfig(temperature=1, top_k=top_k))
    noise = exponential_noise(len(scores), torch.Generator().manual_seed(seed))
    assert shares[sample_token(shares, next(noise))] > 0


def test_samples_have_the_frequencies_of_their_probabilities() -> None:
    shares = probabilities(torch.randn(17, generator=torch.Generator().manual_seed(1)), PLAIN)
    n = 100_000
    random = torch.Generator().manual_seed(0)
    noise = next(exponential_noise(n * 17, random)).view(n, 17)
    assert (noise > 0).all()
    counts = torch.bincount(torch.tensor(sample_tokens(shares.expand(n, -1), noise)), minlength=17)
    deviation = (shares * (1 - shares) / n).sqrt()
    assert ((counts / n - shares).abs() <= 4 * deviation).all()


@pytest.mark.thorough
def test_rounding_hardly_ever_changes_a_sample() -> None:
    """With slightly different logits, at most a quarter as many samples change as with cumulative sums."""
    n = 4_000
    V = 1_009
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(n, V, generator=random, dtype=torch.float64)
    one = row_probabilities(logits, PLAIN, [()] * n)
    other = row_probabilities(logits + 1e-3 * torch.randn(n, V, generator=random), PLAIN, [()] * n)
    uniform = torch.rand(n, 1, generator=random, dtype=torch.float64)
    by_sum = [torch.searchsorted(shares.cumsum(-1), uniform) for shares in (one, other)]
    noise = next(exponential_noise(n * V, random)).view(n, V)
    changed = sum(a != b for a, b in zip(sample_tokens(one, noise), sample_tokens(other, noise), strict=True))
    assert 4 * changed <= int((by_sum[0] != by_sum[1]).sum())


def test_ranked_is_over_the_whole_vocabulary_and_ties_go_by_id() -> None:
    logits = torch.tensor([1.0, 2.0, 1.0, 0.0])
    shares = softmax(logits.tolist())
    assert [id for id, _ in ranked(logits, 3)] == [1, 0, 2]
    assert [share for _, share in ranked(logits, 2)] == pytest.approx([shares[1], shares[0]])
    everything = ranked(logits, 99)
    assert len(everything) == 4
    assert math.isclose(sum(share for _, share in everything), 1.0)
