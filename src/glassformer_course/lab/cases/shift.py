"""Case: the labels are shifted twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from glassformer.text.batches import Batch, padded
from glassformer.text.rows import Row
from glassformer_course.lab.bench import STORIES, LabTrainer, Trained, comparison_chart, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Number, Point
from glassformer_course.lab.planting import replaced

PROMPT = "Once upon a time, "
OFFSETS = range(4)


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the targets, which are already shifted by one token, are shifted again."""
    original_from_rows = Batch.from_rows

    @classmethod  # type: ignore[misc]
    def from_rows(cls: type[Batch], rows: Sequence[Row]) -> Batch:
        targets, _ = padded([np.append(row.targets[1:], row.targets[-1]) for row in rows])
        return replace(original_from_rows(rows), targets=targets)

    with replaced((Batch, "from_rows", from_rows)):
        yield


def agreement(trained: Trained) -> list[Point]:
    """Return points (offset, fraction of positions whose likeliest token is the token `offset` positions later)."""
    rows = [row for row in trained.task.held_out(600) if len(row) == trained.config.model.context + 1]
    ids = torch.tensor([row.ids.tolist() for row in rows])  # (B, T + 1)
    max_offset = max(OFFSETS)
    with torch.no_grad():
        predictions = trained.model(ids[:, :-1]).argmax(dim=-1)[:, : -max_offset + 1]  # (B, T + 1 - max_offset)
    width = predictions.shape[1]
    return [(offset, float((predictions == ids[:, offset : offset + width]).float().mean())) for offset in OFFSETS]


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the losses, the offsets of the predicted tokens, and continuations of the prompt."""
    (healthy, healthy_agreement, healthy_text), (faulty, faulty_agreement, faulty_text) = trainer.run_both(
        lambda _: (trained := trainer.train(STORIES, 200), agreement(trained), trained.continuation(PROMPT))
    )
    return Evidence(
        charts=[
            loss_chart(healthy, faulty),
            comparison_chart(
                "offset of the most likely token",
                "tokens after the input",
                "fraction of positions",
                healthy_agreement,
                faulty_agreement,
            ),
        ],
        samples={f"healthy: {PROMPT.strip()} …": [healthy_text], f"faulty: {PROMPT.strip()} …": [faulty_text]},
        numbers=[
            Number(
                "one",
                "fraction of predictions that are the next token",
                healthy_agreement[1][1],
                faulty_agreement[1][1],
            ),
            Number(
                "two",
                "fraction of predictions that are the token after the next",
                healthy_agreement[2][1],
                faulty_agreement[2][1],
            ),
            last_losses(healthy, faulty),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty model predicts the second next token more often than the next token."""
    one = evidence.number("one")
    two = evidence.number("two")
    return one.healthy > two.healthy and two.faulty > one.faulty
