"""Case: padding counts in the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from glassformer.corpora import find_text_corpus
from glassformer.text.batches import Batch
from glassformer.text.rows import Row
from glassformer_course.lab.bench import LabTrainer, Trained, comparison_chart, loss_chart
from glassformer_course.lab.evidence import Evidence, Number
from glassformer_course.lab.planting import replaced

SETTINGS: dict[str, dict[str, Any]] = {"data": {"document": "line", "windows": "documents"}}


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: every position of a batch counts in the loss, including padding."""
    original_from_rows = Batch.from_rows

    @classmethod  # type: ignore[misc]
    def from_rows(cls: type[Batch], rows: Sequence[Row]) -> Batch:
        batch = original_from_rows(rows)
        all_positions = torch.ones_like(batch.loss_mask)
        return replace(batch, loss_mask=all_positions, n_targets=all_positions.numel())

    with replaced((Batch, "from_rows", from_rows)):
        yield


def sentences(stories: int) -> str:
    """Return sentences of generated stories, one per line, but three in every fourth line."""
    texts = find_text_corpus("stories").documents(stories, seed=0)
    sentence_iterator = iter(
        [f"{sentence.strip()}." for text in texts for sentence in text.split(".") if sentence.strip()]
    )
    lines: list[str] = []
    for sentence in sentence_iterator:
        lines.append(" ".join([sentence, *islice(sentence_iterator, 2)]) if len(lines) % 4 == 3 else sentence)
    return "\n".join(lines) + "\n"


def real_loss(trained: Trained) -> float:
    """Return the validation loss over real tokens only."""
    batch = Batch.from_rows(trained.task.held_out(1000))
    with torch.no_grad():
        logits = trained.model(batch.inputs)  # (B, T, V)
    return float(cross_entropy(logits[batch.attention_mask], batch.targets[batch.attention_mask]))


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the reported losses, the losses over real tokens, and the numbers of predictions counted."""
    text = sentences(200)
    healthy, faulty = trainer.run_both(lambda _: trainer.train(SETTINGS, 200, real_loss, {"source": text}))
    rows = healthy.task.rows(0)
    positions = len(rows) * (max(map(len, rows)) - 1)
    return Evidence(
        charts=[
            loss_chart(healthy, faulty, "training loss, as reported", floor=False),
            comparison_chart("loss on the words themselves", "step", "nats per token", healthy.watched, faulty.watched),
        ],
        numbers=[
            Number("counted", "predictions counted in the first step", sum(map(len, rows)) - len(rows), positions),
            Number(
                "loss", "validation loss at the end, as reported", *(f.validation[-1][1] for f in (healthy, faulty))
            ),
            Number("real", "loss on the words themselves, at the end", healthy.watched[-1][1], faulty.watched[-1][1]),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty model counts more predictions and reports a loss below its loss over real tokens."""
    counted = evidence.number("counted")
    loss = evidence.number("loss")
    real = evidence.number("real")
    return counted.faulty > 1.3 * counted.healthy and loss.faulty < loss.healthy and real.faulty > loss.faulty
