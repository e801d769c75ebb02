"""Tests of the loss over a whole text, compared with a computation by hand, of its interval, and of its plot."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.text.rows import Row
from glassformer.training.loss_plot import loss_svg
from glassformer.training.validation import LossEstimate, sliding_loss, validation_loss
from tests.property.models import VOCAB, decoder, tiny

CPU = torch.device("cpu")
CONTEXT = 11


class Recorder(nn.Module):
    """A fake model: the loss of a target that is its input plus 1 is ln(2 + input // 8 % 4)."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.sizes: list[int] = []

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) of ids (B, T), and record the size of each forward pass."""
        self.sizes.append(tokens.numel())
        share = 1 / (2 + tokens // 8 % 4)  # (B, T)
        rest = torch.log((1 - share) / (self.vocab_size - 1))[..., None]  # (B, T, 1)
        following = (tokens + 1).clamp(max=self.vocab_size - 1)[..., None]  # (B, T, 1)
        return rest.expand(*tokens.shape, self.vocab_size).scatter(2, following, torch.log(share)[..., None])


def rows_of(lengths: list[int], seed: int = 0) -> list[Row]:
    """Return rows of random ids."""
    numbers = np.random.default_rng(seed)
    return [Row.of_text(numbers.integers(0, VOCAB, size=n).astype(np.uint16)) for n in lengths]


def by_hand(model: nn.Module, rows: list[Row]) -> list[list[float]]:
    """Return -ln p of every target of every row, one row and one token at a time."""
    losses = []
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))
        with torch.inference_mode():
            chances = [model(ids[None, :t])[0, -1].double().softmax(0)[ids[t]].item() for t in range(1, len(ids))]
        losses.append([-math.log(p) for p in chances])
    return losses


def test_the_loss_is_the_mean_over_all_tokens_one_by_one() -> None:
    model = decoder(tiny(context=CONTEXT, positions="rotary"))
    rows = rows_of([12, 12, 5, 2, 9])
    expected = [loss for row in by_hand(model, rows) for loss in row]
    estimate = validation_loss(model, rows, CPU)
    assert len(expected) == estimate.tokens == sum(len(row) - 1 for row in rows)
    assert estimate.rows == len(rows)
    assert estimate.loss == pytest.approx(sum(expected) / len(expected), abs=1e-6)
    assert estimate.perplexity == pytest.approx(math.exp(estimate.loss))
    assert estimate.bits_per_byte(100) == pytest.approx(sum(expected) / math.log(2) / 100, abs=1e-6)


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(2, CONTEXT + 1), min_size=1, max_size=9), at_once=st.integers(1, 60))
def test_the_loss_is_the_same_for_every_grouping(lengths: list[int], at_once: int) -> None:
    model = decoder(tiny(context=CONTEXT, layers=1))
    rows = rows_of(lengths)
    alone, grouped = (validation_loss(model, rows, CPU, most_tokens=n) for n in (1, at_once))
    assert (grouped.tokens, grouped.rows) == (alone.tokens, alone.rows)
    assert grouped.loss == pytest.approx(alone.loss, abs=1e-6)
    assert grouped.ci95 == pytest.approx(alone.ci95, abs=1e-6)


def test_no_forward_pass_takes_more_tokens_than_allowed() -> None:
    model = Recorder(VOCAB)
    validation_loss(model, rows_of([2, 12, 3, 12, 12, 7, 2, 2]), CPU, most_tokens=36)
    assert max(model.sizes) <= 36
    assert len(model.sizes) < 8


def test_measuring_changes_neither_the_mode_nor_the_random_numbers() -> None:
    model = decoder(tiny(context=CONTEXT, dropout_residual=0.5)).train()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    losses = {validation_loss(model, rows_of([12, 7]), CPU).loss for _ in range(3)}
    assert torch.equal(torch.rand(3), expected)
    assert model.training
    assert len(losses) == 1


def test_the_interval_treats_windows_as_independent() -> None:
    """For windows of equal length, the interval is 1.96 standard errors of their means; four times as many halve it."""
    model = decoder(tiny(context=CONTEXT, layers=1))
    rows = rows_of([12] * 64)
    means = np.array([np.mean(row) for row in by_hand(model, rows)])
    estimate = validation_loss(model, rows, CPU)
    assert estimate.ci95 == pytest.approx(1.96 * means.std(ddof=1) / math.sqrt(len(rows)), rel=1e-4)
    many = validation_loss(model, rows * 4, CPU)
    assert many.loss == pytest.approx(estimate.loss, abs=1e-6)
    assert many.ci95 == pytest.approx(estimate.ci95 / 2, rel=0.01)


def test_the_interval_contains_the_true_loss_about_95_times_in_100() -> None:
    """Tokens of a window share a loss, so an interval that treats tokens as independent would be too narrow."""
    numbers = np.random.default_rng(5)
    inside = 0
    model = Recorder(32)
    truth = float(np.mean(np.log([2, 3, 4, 5])))
    for _ in range(300):
        starts = 8 * numbers.integers(0, 4, size=40)
        lengths = numbers.integers(2, 9, size=40)
        rows = [Row.of_text(np.arange(start, start + length)) for start, length in zip(starts, lengths, strict=True)]
        estimate = validation_loss(model, rows, CPU)
        inside += abs(estimate.loss - truth) <= estimate.ci95
    assert 0.91 <= inside / 300 <= 0.98


def test_a_single_window_has_no_interval() -> None:
    estimate = validation_loss(decoder(tiny(context=CONTEXT)), rows_of([12]), CPU)
    assert estimate.rows == 1
    assert estimate.ci95 is None


# ---- sliding window


@settings(max_examples=20)
@given(length=st.integers(2, 70), context=st.integers(1, 13))
def test_a_sliding_window_counts_every_token_once(length: int, context: int) -> None:
    """All ids differ and each loss identifies its token, so the sum shows that every token is counted once."""
    ids = np.arange(length)
    model = Recorder(length)
    estimate = sliding_loss(model, ids, context, CPU)
    expected = sum(math.log(2 + t // 8 % 4) for t in range(length - 1))
    assert estimate.tokens == length - 1
    assert estimate.loss * estimate.tokens == pytest.approx(expected, rel=1e-5)


def test_a_sliding_window_shows_every_token_at_least_half_a_context() -> None:
    """Token t is predicted from the latest window, at a multiple of the stride, that shows half a context."""
    model = decoder(tiny(context=CONTEXT, positions="learned"))
    ids = rows_of([47])[0].ids
    stride = CONTEXT // 2
    losses = []
    for t in range(1, len(ids)):
        start = 0 if t <= CONTEXT else -(-(t - CONTEXT) // stride) * stride
        assert t - start >= min(t, CONTEXT - stride)
        losses += [by_hand(model, [Row.of_text(ids[start : t + 1])])[0][-1]]
    assert sliding_loss(model, ids, CONTEXT, CPU).loss == pytest.approx(np.mean(losses), abs=1e-6)


@pytest.mark.parametrize("length", [2, 7, CONTEXT, CONTEXT + 1])
def test_a_sliding_window_over_a_short_text_gives_the_plain_loss(length: int) -> None:
    model = decoder(tiny(context=CONTEXT))
    rows = rows_of([length])
    plain = validation_loss(model, rows, CPU)
    sliding = sliding_loss(model, rows[0].ids, CONTEXT, CPU)
    assert sliding.tokens == plain.tokens
    assert sliding.loss == pytest.approx(plain.loss, abs=1e-9)


def test_the_perplexity_of_a_very_bad_model_is_finite() -> None:
    assert math.isfinite(LossEstimate(5000.0, 1.0, 10, 2).perplexity)


# ---- the plot


Curve = list[tuple[int, float]]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(
    training: Curve, validation: Curve, title: str = "a run", entropy: float | None = None
) -> ElementTree.Element:
    """Return the picture as XML."""
    return ElementTree.fromstring(loss_svg(training, validation, title, entropy))


@settings(max_examples=40)
@given(
    training=st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1e6) | st.just(math.nan)), max_size=8),
    validation=st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 50)), max_size=4),
    title=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=60),
    entropy=st.none() | st.floats(0, 5),
)
def test_the_picture_is_valid_and_nothing_lies_outside(
    training: Curve, validation: Curve, title: str, entropy: float | None
) -> None:
    root = drawn(sorted(training), sorted(validation), title, entropy)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    shown = [each for each in root.iter(f"{SVG}text") if "x" in each.attrib]
    for each in shown:
        assert 0 <= float(each.attrib["x"]) <= width
        assert 0 < float(each.attrib["y"]) <= height
    for path in root.iter(f"{SVG}path"):
        assert "nan" not in path.attrib["d"]
        assert "inf" not in path.attrib["d"]


def test_the_picture_shows_both_curves_and_the_entropy() -> None:
    root = drawn([(10, 3.0), (20, 2.0), (30, 1.5)], [(20, 2.1), (30, 1.7)], "runs & <more>", entropy=1.2)
    assert {"training", "validation", "floor"} <= {path.attrib.get("class") for path in root.iter(f"{SVG}path")}
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert {"runs & <more>", "training", "1.500", "validation", "1.700", "true entropy", "1.200"} <= set(words)


def test_labels_never_overlap() -> None:
    """Three curves end at the same position, at the top and at the bottom."""
    for end in (0.5, 5.0):
        root = drawn([(10, 2.0), (20, end)], [(10, 2.1), (20, end)], entropy=end)
        names = ("training", "validation", "true entropy")
        heights = sorted(float(e.attrib["y"]) for e in root.iter(f"{SVG}text") if e.text in names)
        assert all(b - a >= 26 for a, b in pairwise(heights))
