"""The model stays in training mode when it is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from glassformer.model import evaluation_mode
from glassformer.training.validation import validation_loss
from glassformer_course.lab.bench import CPU, Bench, Trained, compared, last_losses
from glassformer_course.lab.evidence import Chart, Evidence, Number, Point, averaged
from glassformer_course.lab.planting import replaced

SETTINGS = {"model": {"dropout_residual": 0.2, "dropout_attention": 0.2}}
TIMES = 8


@contextmanager
def fault() -> Iterator[None]:
    """Leave models in training mode: `eval` and `evaluation_mode` do nothing, as if nobody had called them."""

    @contextmanager
    def training_mode(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
        yield

    with replaced((nn.Module, "eval", lambda self: self), (evaluation_mode, "evaluation_mode", training_mode)):
        yield


def again(found: Trained) -> list[Point]:
    """The loss of the same weights on the same text, measured several times."""
    rows = found.task.held_out(400)
    return [(time, validation_loss(found.model.train(), rows, CPU).loss) for time in range(1, TIMES + 1)]


def observe(bench: Bench) -> Evidence:
    """Training and validation, and the same measurement made several times."""
    (healthy, fine), (faulty, wrong) = bench.both(lambda _: (one := bench.train(SETTINGS, 200), again(one)))
    spread = [max(loss for _, loss in found) - min(loss for _, loss in found) for found in (fine, wrong)]
    gaps = [found.validation[-1][1] - averaged(found.losses, 20)[-1][1] for found in (healthy, faulty)]
    return Evidence(
        charts=[
            Chart(
                f"{name}: two losses",
                "step",
                "nats per token",
                {"training": averaged(found.losses), "validation": found.validation},
            )
            for name, found in (("healthy", healthy), ("faulty", faulty))
        ]
        + [compared("the same weights on the same text", "measurement", "nats per token", fine, wrong)],
        numbers=[
            Number("spread", "largest minus smallest of these measurements", *spread),
            Number("gap", "validation minus training loss, at the end", *gaps),
            last_losses(healthy, faulty),
        ],
    )


def shows(found: Evidence) -> bool:
    """The same measurement gives other numbers, and higher ones."""
    spread = found.number("spread")
    loss = found.number("loss")
    return spread.healthy == 0 < spread.faulty and loss.faulty > loss.healthy
