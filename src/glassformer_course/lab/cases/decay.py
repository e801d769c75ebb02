"""Case: weight decay is added to the gradient (Adam with L2) instead of being subtracted from the weights (AdamW)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from glassformer.base.config import TrainConfig
from glassformer.training import optimizers
from glassformer_course.lab.bench import LabTrainer, Trained, comparison_chart, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Number
from glassformer_course.lab.planting import replaced

SETTINGS: dict[str, dict[str, Any]] = {"train": {"weight_decay": 0.1}}


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: replace AdamW with `torch.optim.Adam`, whose weight decay is part of the gradient."""

    def adam(parameters: list[torch.nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            [
                {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
                {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
        )

    with replaced((optimizers, "_adamw", adam)):
        yield


def weight_size(trained: Trained) -> float:
    """Return the root mean square of the elements of all matrices."""
    matrices = torch.cat([p.detach().flatten() for p in trained.model.parameters() if p.ndim >= 2])
    return float(matrices.square().mean().sqrt())


def without(trainer: LabTrainer) -> Trained:
    """Train the same model without weight decay."""
    return trainer.train({"train": {"weight_decay": 0.0}}, 120)


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the losses and the size of the weights, with and without weight decay."""
    (healthy, healthy_without), (faulty, faulty_without) = trainer.run_both(
        lambda _: (trainer.train(SETTINGS, 120, weight_size), without(trainer))
    )
    return Evidence(
        charts=[
            loss_chart(healthy, faulty, "training loss, weight decay 0.1"),
            loss_chart(healthy_without, faulty_without, "training loss, weight decay 0"),
            comparison_chart(
                "size of the weights, weight decay 0.1", "step", "root mean square", healthy.watched, faulty.watched
            ),
        ],
        numbers=[
            last_losses(healthy, faulty),
            Number(
                "plain",
                "validation loss at the end, without weight decay",
                healthy_without.validation[-1][1],
                faulty_without.validation[-1][1],
            ),
            Number("size", "root mean square of the weights at the end", healthy.watched[-1][1], faulty.watched[-1][1]),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether weight decay shrinks the faulty model's weights more and raises its loss.

    Without weight decay, both models must have about the same loss.
    """
    loss = evidence.number("loss")
    plain = evidence.number("plain")
    size = evidence.number("size")
    return size.faulty < 0.8 * size.healthy and loss.faulty > loss.healthy and abs(plain.healthy - plain.faulty) < 0.05
