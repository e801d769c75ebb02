"""Remove heads step by step, and measure the pruning curve: the loss as a function of the number of removed heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import torch

from glassformer.inspection.ablation import ablation_effects
from glassformer.inspection.pruning.importance import head_importance, per_layer
from glassformer.inspection.pruning.removal import without_heads
from glassformer.inspection.sites import attentions, heads
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model
from glassformer.tasks.task_rows import TaskRows
from glassformer.training.validation import loss_on_rows

Order = Literal["importance", "ablation", "random", "reverse"]
Choose = Callable[[Model, int], Sequence[str]]
"""Function (model, number of heads) -> names of the next heads to remove."""


@dataclass(frozen=True)
class Point:
    """One step of a pruning curve: the heads removed, and the loss without them.

    Attributes:
        removed: number of heads removed so far.
        loss: loss on the measured rows, in nats per target.
        ci95: half width of the loss's 95 % confidence interval; None for a single row.
        names: names of the heads removed in this step.
    """

    removed: int
    loss: float
    ci95: float | None
    names: tuple[str, ...]


def choose_by(order: Order, data: TaskRows, normalized: bool = False, seed: int = 0) -> Choose:
    """Return a function that chooses the next heads to remove, from the current state of the model.

    Args:
        order: "importance": least important head first (Michel et al. 2019); "ablation": head with the smallest loss
            increase by zero ablation first; "random"; or "reverse": most important head first.
        data: rows for choosing heads; keep them separate from the rows that the curve is measured on.
        normalized: whether to divide importance by its l2 norm over the heads of each layer, as Michel et al. 2019 do.
            All layers are then pruned to a similar degree, including the more important ones. Not used by "ablation"
            and "random".
        seed: seed of the random order.
    """
    if order == "random":
        return partial(_random_heads, torch.Generator().manual_seed(seed))
    return partial(_lowest_heads, partial(_scores, order, data, normalized))


def _scores(order: Order, data: TaskRows, normalized: bool, model: Model) -> dict[str, float]:
    if order == "ablation":
        return ablation_effects(model, data, "zero")
    scores = head_importance(model, data)
    scores = per_layer(scores) if normalized else scores
    return {name: -score for name, score in scores.items()} if order == "reverse" else scores


def _lowest_heads(score_function: Callable[[Model], dict[str, float]], model: Model, count: int) -> Sequence[str]:
    scores = score_function(model)
    return sorted(scores, key=lambda name: scores[name])[:count]


def _random_heads(generator: torch.Generator, model: Model, count: int) -> Sequence[str]:
    names = list(map(str, heads(model)))
    return [names[index] for index in torch.randperm(len(names), generator=generator)[:count]]


def prune_steps(
    model: Model, choose: Choose, evaluation_rows: TaskRows, step: int, max_heads: int
) -> Iterator[tuple[Point, Model]]:
    """Yield the points of a pruning curve with their models, from the full model until `max_heads` heads are removed.

    Args:
        model: the full model; it is not modified.
        choose: function that chooses the next heads before each step.
        evaluation_rows: rows to measure the loss on.
        step: number of heads removed at a time; the last step may be smaller.
        max_heads: maximum number of heads to remove in total.
    """
    estimate = loss_on_rows(model, evaluation_rows)
    yield Point(0, estimate.loss, estimate.ci95, ()), model
    removed = 0
    while removed < max_heads:
        names = tuple(choose(model, min(step, max_heads - removed)))
        model = without_heads(model, names)
        removed += len(names)
        estimate = loss_on_rows(model, evaluation_rows)
        yield Point(removed, estimate.loss, estimate.ci95, names), model


def curve(model: Model, choose: Choose, evaluation_rows: TaskRows, step: int) -> list[Point]:
    """Return the whole pruning curve, until all heads are removed."""
    return [point for point, _ in prune_steps(model, choose, evaluation_rows, step, len(heads(model)))]


def area(points: Sequence[Point]) -> float:
    """Return the mean loss of a curve, in nats, by the trapezoidal rule over the number of removed heads."""
    total = sum((right.removed - left.removed) * (left.loss + right.loss) / 2 for left, right in pairwise(points))
    return total / points[-1].removed if points[-1].removed else points[0].loss


def attention_effects(model: Model, evaluation_rows: TaskRows) -> dict[str, float]:
    """Return the change of the loss when all heads of an attention layer are removed, by site, in nats per target."""
    full_loss = loss_on_rows(model, evaluation_rows).loss
    effects = {}
    for site, layer in attentions(model).items():
        names = [f"{site}.{number}" for number in head_numbers(layer)]
        effects[str(site)] = loss_on_rows(without_heads(model, names), evaluation_rows).loss - full_loss
    return effects
