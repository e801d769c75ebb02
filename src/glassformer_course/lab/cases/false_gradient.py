"""Case: all heads share weights, and the backward pass multiplies weights by the error instead of differentiating."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from glassformer.base.config import ModelConfig
from glassformer.corpora import find_text_corpus
from glassformer.numpy_reference import (
    AdamW,
    Inputs,
    NumpyBatch,
    forward,
    gradients,
    initial_weights,
    training,
)
from glassformer.numpy_reference import attention as reference_attention
from glassformer_course.lab.bench import LabTrainer, comparison_chart, rounded
from glassformer_course.lab.evidence import Evidence, Map, Number, Point, averaged
from glassformer_course.lab.planting import replaced

SETTINGS = ModelConfig(family="decoder", layers=1, heads=2, width=24, context=16, tied=False)
RULE = AdamW(learning_rate=0.01, weight_decay=0.0)
TEXT = "Once upon a time"
ROWS = 8


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: every head uses the projections of the first head; the gradient is the weight times the error."""
    original_project = reference_attention.project
    last_weights: list[Any] = []

    def remembering_forward(settings: ModelConfig, weights: Any, inputs: Inputs) -> Any:
        last_weights[:] = [weights]
        return forward(settings, weights, inputs)

    def backward(dlogits: Any, saved: Any) -> dict[str, Any]:
        error = float(np.abs(dlogits).sum())
        return {name: weight * error for name, weight in last_weights[0].items()}

    def project(x: Any, weights: Any, name: str, heads: int, *rest: Any) -> Any:
        y, saved = original_project(x, weights, name, heads, *rest)  # (B, heads, T, K)
        return np.repeat(y[:, :1], heads, axis=1), saved

    with replaced(
        (training, "forward", remembering_forward),
        (training, "backward", backward),
        (reference_attention, "project", project),
    ):
        yield


def letters() -> tuple[list[str], np.ndarray]:
    """Return the distinct characters of some stories, and the stories as ids."""
    text = " ".join(find_text_corpus("stories").documents(60, seed=0))
    characters = sorted(set(text))
    return characters, np.array([characters.index(letter) for letter in text])


def batches(ids: np.ndarray, count: int) -> list[NumpyBatch]:
    """Return `count` batches of windows at random positions."""
    draw = np.random.default_rng(0)
    starts = draw.integers(0, len(ids) - SETTINGS.context - 1, (count, ROWS, 1))
    windows = ids[starts + np.arange(SETTINGS.context + 1)]  # (count, B, T + 1)
    return [NumpyBatch(Inputs(rows[:, :-1]), rows[:, 1:]) for rows in windows]


def slope(weights: Any, batch: NumpyBatch) -> tuple[float, float]:
    """Return the slope of the loss in a random direction, from the gradient and from central differences."""
    draw = np.random.default_rng(1)
    step_size = 1e-5
    _, gradient = gradients(SETTINGS, weights, batch)
    direction = {name: draw.normal(size=weight.shape) for name, weight in weights.items()}
    gradient_slope = sum(float((gradient[name] * direction[name]).sum()) for name in weights)
    loss_ahead, loss_behind = (
        gradients(SETTINGS, {name: weights[name] + sign * step_size * direction[name] for name in weights}, batch)[0]
        for sign in (1, -1)
    )
    return gradient_slope, (loss_ahead - loss_behind) / (2 * step_size)


def attention_of(saved: Any) -> np.ndarray:
    """Return the first layer's attention weights, (B, H, T, T), from the values saved by a forward pass."""
    return np.asarray(saved.stack.blocks[0].residuals[0].part.attend.weights)


def see(trainer: LabTrainer, name: str) -> tuple[list[Point], list[Map], tuple[float, float], float]:
    """Train in NumPy; return the losses, the maps of both heads, the two slopes, and the difference of the heads."""
    characters, ids = letters()
    weights = initial_weights(SETTINGS, len(characters), seed=0)
    steps = batches(ids, max(20, round(200 * trainer.step_fraction)))
    slopes = slope(weights, steps[0])
    trained, losses = training.train(SETTINGS, weights, steps, RULE)
    text_ids = np.array([[characters.index(letter) for letter in TEXT]])
    _, saved = forward(SETTINGS, trained, Inputs(text_ids))
    heads = attention_of(saved)[0]  # (H, T, T)
    labels = [letter.strip() or "␣" for letter in TEXT]
    maps = [Map(f"{name}, head {head}", labels, labels, rounded(torch.from_numpy(heads[head]))) for head in (0, 1)]
    return list(enumerate(losses, start=1)), maps, slopes, float(np.abs(heads[0] - heads[1]).max())


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the losses, the maps of both heads, and the slopes from the gradient and from central differences."""
    (
        (healthy_losses, healthy_maps, healthy_slopes, healthy_head_difference),
        (faulty_losses, faulty_maps, faulty_slopes, faulty_head_difference),
    ) = trainer.run_both(lambda name: see(trainer, name))
    return Evidence(
        charts=[
            comparison_chart(
                "training loss", "step", "nats per character", averaged(healthy_losses), averaged(faulty_losses)
            )
        ],
        maps=[*healthy_maps, *faulty_maps],
        numbers=[
            Number(
                "said",
                "slope of the loss in a random direction, from the gradient",
                healthy_slopes[0],
                faulty_slopes[0],
            ),
            Number("slope", "the same slope, measured by central differences", healthy_slopes[1], faulty_slopes[1]),
            Number(
                "apart",
                "largest difference between the attention weights of the two heads",
                healthy_head_difference,
                faulty_head_difference,
            ),
            Number("loss", "training loss at the end", averaged(healthy_losses)[-1][1], averaged(faulty_losses)[-1][1]),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty model's gradient disagrees with the measured slope, and its heads are equal."""
    gradient_slope = evidence.number("said")
    measured_slope = evidence.number("slope")
    apart = evidence.number("apart")
    healthy_agrees = abs(gradient_slope.healthy - measured_slope.healthy) < 1e-3 * abs(measured_slope.healthy)
    return (
        healthy_agrees
        and abs(gradient_slope.faulty - measured_slope.faulty) > 0.1 * abs(measured_slope.faulty)
        and apart.faulty == 0 < apart.healthy
    )
