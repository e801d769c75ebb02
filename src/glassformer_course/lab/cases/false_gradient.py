"""Case: all heads share weights, and the backward pass multiplies weights by the error instead of differentiating."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from glassformer.corpora import find_text_corpus
from glassformer.numpy_reference import (
    AdamW,
    Inputs,
    NumpyBatch,
    Settings,
    forward,
    gradients,
    initial_weights,
    training,
)
from glassformer.numpy_reference import attention as reference_attention
from glassformer_course.lab.bench import LabTrainer, compared, rounded
from glassformer_course.lab.evidence import Evidence, Map, Number, Point, averaged
from glassformer_course.lab.planting import replaced

SETTINGS = Settings(family="decoder", layers=1, heads=2, width=24, context=16, tied=False)
RULE = AdamW(learning_rate=0.01, weight_decay=0.0)
TEXT = "Once upon a time"
ROWS = 8


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: every head uses the projections of the first; the gradient is the weight times the error."""
    own_project = reference_attention.project
    given: list[Any] = []

    def remember(settings: Settings, weights: Any, inputs: Inputs) -> Any:
        given[:] = [weights]
        return forward(settings, weights, inputs)

    def backward(dlogits: Any, kept: Any) -> dict[str, Any]:
        error = float(np.abs(dlogits).sum())
        return {name: weight * error for name, weight in given[0].items()}

    def project(x: Any, weights: Any, name: str, heads: int, *rest: Any) -> Any:
        y, kept = own_project(x, weights, name, heads, *rest)  # (B, heads, T, K)
        return np.repeat(y[:, :1], heads, axis=1), kept

    with replaced(
        (training, "forward", remember), (training, "backward", backward), (reference_attention, "project", project)
    ):
        yield


def letters() -> tuple[list[str], np.ndarray]:
    """Return the distinct characters of some stories, and the stories as ids."""
    text = " ".join(find_text_corpus("stories").documents(60, seed=0))
    known = sorted(set(text))
    return known, np.array([known.index(letter) for letter in text])


def batches(ids: np.ndarray, count: int) -> list[NumpyBatch]:
    """Return `count` batches of windows at random positions."""
    draw = np.random.default_rng(0)
    starts = draw.integers(0, len(ids) - SETTINGS.context - 1, (count, ROWS, 1))
    windows = ids[starts + np.arange(SETTINGS.context + 1)]  # (count, B, T + 1)
    return [NumpyBatch(Inputs(rows[:, :-1]), rows[:, 1:]) for rows in windows]


def slope(weights: Any, batch: NumpyBatch) -> tuple[float, float]:
    """Return the slope of the loss in a random direction, from the gradient and from central differences."""
    draw = np.random.default_rng(1)
    size = 1e-5
    _, found = gradients(SETTINGS, weights, batch)
    way = {name: draw.normal(size=weight.shape) for name, weight in weights.items()}
    said = sum(float((found[name] * way[name]).sum()) for name in weights)
    ahead, behind = (
        gradients(SETTINGS, {name: weights[name] + sign * size * way[name] for name in weights}, batch)[0]
        for sign in (1, -1)
    )
    return said, (ahead - behind) / (2 * size)


def attention_of(kept: Any) -> np.ndarray:
    """Return the first layer's attention weights, (B, H, T, T), from the values kept by a forward pass."""
    return np.asarray(kept.stack.blocks[0].residuals[0].part.attend.weights)


def see(bench: LabTrainer, name: str) -> tuple[list[Point], list[Map], tuple[float, float], float]:
    """Train in NumPy; return the losses, the maps of both heads, the two slopes, and the difference of the heads."""
    known, ids = letters()
    weights = initial_weights(SETTINGS, len(known), seed=0)
    steps = batches(ids, max(20, round(200 * bench.share)))
    said = slope(weights, steps[0])
    trained, losses = training.train(SETTINGS, weights, steps, RULE)
    shown = np.array([[known.index(letter) for letter in TEXT]])
    _, kept = forward(SETTINGS, trained, Inputs(shown))
    heads = attention_of(kept)[0]  # (H, T, T)
    labels = [letter.strip() or "␣" for letter in TEXT]
    maps = [Map(f"{name}, head {head}", labels, labels, rounded(torch.from_numpy(heads[head]))) for head in (0, 1)]
    return list(enumerate(losses, start=1)), maps, said, float(np.abs(heads[0] - heads[1]).max())


def observe(bench: LabTrainer) -> Evidence:
    """Compare the losses, the maps of both heads, and the slopes from the gradient and from central differences."""
    (fine, maps, said, apart), (wrong, equal, claimed, together) = bench.both(lambda name: see(bench, name))
    return Evidence(
        charts=[compared("training loss", "step", "nats per character", averaged(fine), averaged(wrong))],
        maps=[*maps, *equal],
        numbers=[
            Number("said", "slope of the loss in a random direction, from the gradient", said[0], claimed[0]),
            Number("slope", "the same slope, measured by central differences", said[1], claimed[1]),
            Number("apart", "largest difference between the attention weights of the two heads", apart, together),
            Number("loss", "training loss at the end", averaged(fine)[-1][1], averaged(wrong)[-1][1]),
        ],
    )


def shows(found: Evidence) -> bool:
    """Return whether the faulty gradient disagrees with the measured slope and its heads are equal."""
    said = found.number("said")
    slope_ = found.number("slope")
    apart = found.number("apart")
    true = abs(said.healthy - slope_.healthy) < 1e-3 * abs(slope_.healthy)
    return true and abs(said.faulty - slope_.faulty) > 0.1 * abs(slope_.faulty) and apart.faulty == 0 < apart.healthy
