"""Case: the model stays in training mode during evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from glassformer.model import evaluation_mode
from glassformer.training.validation import validation_loss
from glassformer_course.lab.bench import CPU, LabTrainer, Trained, compared, last_losses
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


def repeated_losses(found: Trained) -> list[Point]:
    """Return (number of the measurement, loss of the same weights on the same text)."""
    rows = found.task.held_out(400)
    return [(time, validation_loss(found.model.train(), rows, CPU).loss) for time in range(1, TIMES + 1)]


def observe(bench: LabTrainer) -> Evidence:
    """Compare training and validation losses, and repeated measurements of the same loss."""
    (healthy, fine), (faulty, wrong) = bench.both(lambda _: (one := bench.train(SETTINGS, 200), repeated_losses(one)))
    spread = [max(loss for _, loss in found) - min(loss for _, loss in found) for found in (fine, wrong)]
    gaps = [found.validation[-1][1] - averaged(found.losses, 20)[-1][1] for found in (healthy, faulty)]
    return Evidence(
        charts=[
            Chart(
                f"{name}: training and validation loss",
                "step",
                "nats per token",
                {"training": averaged(found.losses), "validation": found.validation},
            )
            for name, found in (("healthy", healthy), ("faulty", faulty))
        ]
        + [compared("the same weights on the same text", "measurement", "nats per token", fine, wrong)],
        numbers=[
            Number("spread", "largest minus smallest of the repeated measurements", *spread),
            Number("gap", "validation minus training loss, at the end", *gaps),
            last_losses(healthy, faulty),
        ],
    )


def shows(found: Evidence) -> bool:
    """Return whether only the faulty model's measurements differ, and its loss is higher."""
    spread = found.number("spread")
    loss = found.number("loss")
    return spread.healthy == 0 < spread.faulty and loss.faulty > loss.healthy
