"""Case: the model stays in training mode during evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from glassformer.model import evaluation_mode
from glassformer.training.validation import validation_loss
from glassformer_course.lab.bench import CPU, LabTrainer, Trained, comparison_chart, last_losses
from glassformer_course.lab.evidence import Chart, Evidence, Number, Point, averaged
from glassformer_course.lab.planting import replaced

SETTINGS = {"model": {"dropout_residual": 0.2, "dropout_attention": 0.2}}
TIMES = 8


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: `eval` and `evaluation_mode` do nothing, so models stay in training mode."""

    @contextmanager
    def training_mode(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
        yield

    with replaced((nn.Module, "eval", lambda self: self), (evaluation_mode, "evaluation_mode", training_mode)):
        yield


def repeated_losses(trained: Trained) -> list[Point]:
    """Return a point (number of the measurement, loss of the same weights on the same text) for each measurement."""
    rows = trained.task.held_out(400)
    return [
        (measurement, validation_loss(trained.model.train(), rows, CPU).loss) for measurement in range(1, TIMES + 1)
    ]


def observe(trainer: LabTrainer) -> Evidence:
    """Compare training and validation losses, and repeated measurements of the same loss."""
    (healthy, healthy_losses), (faulty, faulty_losses) = trainer.run_both(
        lambda _: (trained := trainer.train(SETTINGS, 200), repeated_losses(trained))
    )
    spread = [
        max(loss for _, loss in losses) - min(loss for _, loss in losses) for losses in (healthy_losses, faulty_losses)
    ]
    gaps = [trained.validation[-1][1] - averaged(trained.losses, 20)[-1][1] for trained in (healthy, faulty)]
    return Evidence(
        charts=[
            Chart(
                f"{name}: training and validation loss",
                "step",
                "nats per token",
                {"training": averaged(trained.losses), "validation": trained.validation},
            )
            for name, trained in (("healthy", healthy), ("faulty", faulty))
        ]
        + [
            comparison_chart(
                "the same weights on the same text", "measurement", "nats per token", healthy_losses, faulty_losses
            )
        ],
        numbers=[
            Number("spread", "largest minus smallest of the repeated measurements", *spread),
            Number("gap", "validation minus training loss, at the end", *gaps),
            last_losses(healthy, faulty),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether only the faulty model's repeated measurements differ, and its loss is higher."""
    spread = evidence.number("spread")
    loss = evidence.number("loss")
    return spread.healthy == 0 < spread.faulty and loss.faulty > loss.healthy
