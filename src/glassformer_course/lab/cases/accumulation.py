"""Case: gradients of micro-batches are averaged as if each had the same number of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from glassformer.text.batches import Batch
from glassformer.training import loop
from glassformer.training.stepping import Stepper
from glassformer.training.validation import validation_loss
from glassformer_course.lab.bench import CPU, LabTrainer, Trained, comparison_chart
from glassformer_course.lab.cases.pad_loss import sentences
from glassformer_course.lab.evidence import Evidence, Number, Point
from glassformer_course.lab.planting import replaced

ROWS = 8
SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"document": "line", "windows": "documents"},
    "train": {"batch": ROWS, "micro_batch": 1},
}


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the mean loss of each micro-batch is divided by the number of micro-batches."""

    def accumulate(stepper: Stepper, batches: list[Batch]) -> tuple[float, int]:
        total = 0.0
        for optimizer in stepper.optimizers:
            optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            loss = stepper.loss(batch, batch.n_targets * len(batches))  # ()
            loss.backward()
            total += float(loss.detach())
        return total, sum(batch.n_targets for batch in batches)

    with replaced((loop, "accumulate_gradients", accumulate)):
        yield


def differences(trained: Trained) -> list[Point]:
    """Return points (micro-batch size, relative difference of the gradient from that of all eight rows at once)."""
    rows = trained.task.rows(0)
    gradients = {}
    for size in (8, 4, 2, 1):
        stepper = Stepper(trained.model, trained.task, trained.config.with_changes({"train.micro_batch": str(size)}))
        loop.accumulate_gradients(stepper, stepper.batches(rows))
        gradients[size] = torch.cat([p.grad.flatten() for p in trained.model.parameters() if p.grad is not None])
    return [(size, float((g - gradients[8]).norm() / gradients[8].norm())) for size, g in gradients.items()]


def by_length(trained: Trained) -> tuple[float, float]:
    """Return the validation loss of the shortest and of the longest quarter of the rows."""
    rows = sorted(trained.task.held_out(None), key=len)
    quarter = max(1, len(rows) // 4)
    short, long = (validation_loss(trained.model, part, CPU).loss for part in (rows[:quarter], rows[-quarter:]))
    return short, long


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the gradients of the same rows in different groupings, and the losses on short and long sentences."""
    text = sentences(200)
    (healthy, healthy_differences, healthy_by_length), (faulty, faulty_differences, faulty_by_length) = (
        trainer.run_both(
            lambda _: (
                trained := trainer.train(SETTINGS, 160, files={"source": text}),
                differences(trained),
                by_length(trained),
            )
        )
    )
    return Evidence(
        charts=[
            comparison_chart("validation loss", "step", "nats per token", healthy.validation, faulty.validation),
            comparison_chart(
                "gradient of the same 8 rows",
                "rows at a time",
                "relative difference",
                healthy_differences,
                faulty_differences,
            ),
        ],
        numbers=[
            Number(
                "apart",
                "relative difference between the gradients of 8 rows one at a time and all at once",
                healthy_differences[-1][1],
                faulty_differences[-1][1],
            ),
            Number("short", "loss on the shortest quarter of the sentences", healthy_by_length[0], faulty_by_length[0]),
            Number("long", "loss on the longest quarter of the sentences", healthy_by_length[1], faulty_by_length[1]),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether only the faulty gradient depends on the micro-batch size."""
    apart = evidence.number("apart")
    return apart.healthy < 1e-4 and apart.faulty > 0.02
