"""Removing heads step by step, and the curve of the loss over how many are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import torch

from glassformer.inspection.ablation import ablation_effects
from glassformer.inspection.pruning.importance import head_importance, per_layer
from glassformer.inspection.pruning.removal import without
from glassformer.inspection.sites import attentions, heads
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model
from glassformer.tasks.task_rows import TaskRows
from glassformer.training.validation import loss_on_rows

Order = Literal["importance", "ablation", "random", "reverse"]
Choose = Callable[[Model, int], Sequence[str]]
"""The names of the next so many heads to remove from a model."""


@dataclass(frozen=True)
class Point:
    """One step of a curve.

    Attributes:
        removed: heads gone so far.
        loss: on the measured rows, in nats per target.
        ci95: half width of its interval; None of one row.
        names: heads removed in this step.
    """

    removed: int
    loss: float
    ci95: float | None
    names: tuple[str, ...]


def choose_by(order: Order, data: TaskRows, normalised: bool = False, seed: int = 0) -> Choose:
    """Return a function that chooses the next heads to remove, from the current state of the model.

    Args:
        order: least `importance` first (Michel et al. 2019), the smallest rise of the loss by `ablation` (zero) first,
            at `random`, or in `reverse`: most important first.
        data: rows to look at; none of those that the curve is measured on.
        normalised: divide importance by the l2 norm of that of the attention, as Michel et al. 2019 do. Layers are then
            pruned alike, also those that matter less as a whole.
        seed: of the random order.
    """
    if order == "random":
        return partial(_drawn, torch.Generator().manual_seed(seed))
    return partial(_lowest, partial(_scores, order, data, normalised))


def _scores(order: Order, data: TaskRows, normalised: bool, model: Model) -> dict[str, float]:
    if order == "ablation":
        return ablation_effects(model, data, "zero")
    found = head_importance(model, data)
    found = per_layer(found) if normalised else found
    return {name: -score for name, score in found.items()} if order == "reverse" else found


def _lowest(scores: Callable[[Model], dict[str, float]], model: Model, count: int) -> Sequence[str]:
    found = scores(model)
    return sorted(found, key=lambda name: found[name])[:count]


def _drawn(generator: torch.Generator, model: Model, count: int) -> Sequence[str]:
    names = list(map(str, heads(model)))
    return [names[index] for index in torch.randperm(len(names), generator=generator)[:count]]


def prune_steps(
    model: Model, choose: Choose, measured: TaskRows, step: int, most: int
) -> Iterator[tuple[Point, Model]]:
    """Points of the curve with the model of each, from the whole model on, until `most` heads are gone.

    Args:
        model: left as it is.
        choose: which go next; asked before every step.
        measured: rows for the loss.
        step: heads that go at a time; the last step may be shorter.
        most: heads to remove in all.
    """
    estimate = loss_on_rows(model, measured)
    yield Point(0, estimate.loss, estimate.ci95, ()), model
    removed = 0
    while removed < most:
        names = tuple(choose(model, min(step, most - removed)))
        model = without(model, names)
        removed += len(names)
        estimate = loss_on_rows(model, measured)
        yield Point(removed, estimate.loss, estimate.ci95, names), model


def curve(model: Model, choose: Choose, measured: TaskRows, step: int) -> list[Point]:
    """The whole curve, until no head is left."""
    return [point for point, _ in prune_steps(model, choose, measured, step, len(heads(model)))]


def area(points: Sequence[Point]) -> float:
    """The mean loss over the share of heads removed, from none to the last point's: trapezoids, in nats."""
    whole = sum((right.removed - left.removed) * (left.loss + right.loss) / 2 for left, right in pairwise(points))
    return whole / points[-1].removed if points[-1].removed else points[0].loss


def attention_effects(model: Model, measured: TaskRows) -> dict[str, float]:
    """The loss without all heads of an attention minus the loss, in nats per target, for each attention by its site."""
    whole = loss_on_rows(model, measured).loss
    found = {}
    for site, layer in attentions(model).items():
        names = [f"{site}.{number}" for number in head_numbers(layer)]
        found[str(site)] = loss_on_rows(without(model, names), measured).loss - whole
    return found
