"""The labels are shifted twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from glassformer.text.batches import Batch, padded
from glassformer.text.rows import Row
from glassformer_course.lab.bench import STORIES, Bench, Trained, compared, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Number, Point
from glassformer_course.lab.planting import replaced

PROMPT = "Once upon a time, "
OFFSETS = range(4)


@contextmanager
def fault() -> Iterator[None]:
    """The targets of rows, which are one token later already, are taken one later again."""
    own = Batch.from_rows

    @classmethod  # type: ignore[misc]
    def from_rows(cls: type[Batch], rows: Sequence[Row]) -> Batch:
        targets, _ = padded([np.append(row.targets[1:], row.targets[-1]) for row in rows])
        return replace(own(rows), targets=targets)

    with replaced((Batch, "from_rows", from_rows)):
        yield


def agreement(found: Trained) -> list[Point]:
    """Return (offset, share of positions whose best guess is the token `offset` positions after the one read)."""
    rows = [row for row in found.task.held_out(600) if len(row) == found.config.model.context + 1]
    ids = torch.tensor([row.ids.tolist() for row in rows])  # (B, T + 1)
    far = max(OFFSETS)
    with torch.no_grad():
        best = found.model(ids[:, :-1]).argmax(dim=-1)[:, : -far + 1]  # (B, T + 1 - far)
    width = best.shape[1]
    return [(offset, float((best == ids[:, offset : offset + width]).float().mean())) for offset in OFFSETS]


def observe(bench: Bench) -> Evidence:
    """Compare the losses, the tokens that the best guess agrees with, and continuations of the prompt."""
    (healthy, fine, text), (faulty, wrong, garbled) = bench.both(
        lambda _: (one := bench.train(STORIES, 200), agreement(one), one.continued(PROMPT))
    )
    return Evidence(
        charts=[
            loss_chart(healthy, faulty),
            compared("what the best guess is", "tokens after the one just read", "share of places", fine, wrong),
        ],
        samples={f"healthy: {PROMPT.strip()} …": [text], f"faulty: {PROMPT.strip()} …": [garbled]},
        numbers=[
            Number("one", "share of best guesses that are the next token", fine[1][1], wrong[1][1]),
            Number("two", "share that are the token after the next", fine[2][1], wrong[2][1]),
            last_losses(healthy, faulty),
        ],
    )


def shows(found: Evidence) -> bool:
    """The faulty model's guesses are one token further."""
    one = found.number("one")
    two = found.number("two")
    return one.healthy > two.healthy and two.faulty > one.faulty
