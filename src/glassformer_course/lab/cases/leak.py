"""Case: training and validation windows overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from glassformer.corpora import find_text_corpus
from glassformer.text.rows import Row
from glassformer.text.split import DocumentSplit, SplitName, SplitPiece
from glassformer.text.survey import KeptPiece
from glassformer.training.validation import validation_loss
from glassformer_course.lab.bench import CPU, LabTrainer, Trained, comparison_chart, loss_chart
from glassformer_course.lab.evidence import Evidence, Number
from glassformer_course.lab.planting import replaced

WIDTH = 200
STRIDE = 50
EVERY = 8
"""Windows have WIDTH characters and start every STRIDE characters; one in EVERY windows is held out."""
RUN = 8  # tokens
SETTINGS: dict[str, dict[str, Any]] = {"model": {"width": 48}, "data": {"size": 16, "validation_fraction": 0.15}}


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: overlapping windows are cut first, and then assigned to training or validation."""

    def by_position(self: DocumentSplit, pieces: Iterator[KeptPiece]) -> Iterator[SplitPiece]:
        text = " ".join(text for piece in pieces for text in piece.texts)
        for number, start in enumerate(range(0, len(text), STRIDE)):
            split_name: SplitName = "validation" if number % EVERY == EVERY // 2 else "train"
            yield SplitPiece(split_name, (text[start : start + WIDTH],), (), True)

    with replaced((DocumentSplit, "_by_position", by_position)):
        yield


def seen_before(trained: Trained) -> float:
    """Return the fraction of 8-token sequences of the validation split that also occur in the training split."""
    runs = [
        [tuple(window) for window in np.lib.stride_tricks.sliding_window_view(store.tokens, RUN).tolist()]
        for store in (trained.data.train.source, trained.data.validation.source)
    ]
    training_runs = set(runs[0])
    return sum(run in training_runs for run in runs[1]) / max(1, len(runs[1]))


def fresh_loss(trained: Trained) -> float:
    """Return the loss on stories that are in neither split."""
    ids = np.array(trained.tokenizer.encode(" ".join(find_text_corpus("stories").documents(40, seed=9))))
    width = trained.config.model.context
    rows = [Row.of_text(ids[start : start + width + 1]) for start in range(0, len(ids) - width, width)]
    return validation_loss(trained.model, rows, CPU).loss


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the losses on validation and on new text, and the overlap of the two splits."""
    (healthy, healthy_overlap), (faulty, faulty_overlap) = trainer.run_both(
        lambda _: (trained := trainer.train(SETTINGS, 240, fresh_loss), seen_before(trained))
    )
    return Evidence(
        charts=[
            loss_chart(healthy, faulty, floor=False),
            comparison_chart("validation loss", "step", "nats per token", healthy.validation, faulty.validation),
            comparison_chart("loss on new stories", "step", "nats per token", healthy.watched, faulty.watched),
        ],
        numbers=[
            Number("loss", "validation loss at the end", healthy.validation[-1][1], faulty.validation[-1][1]),
            Number("fresh", "loss on new stories at the end", healthy.watched[-1][1], faulty.watched[-1][1]),
            Number(
                "known",
                "fraction of 8-token sequences of validation that occur in training",
                healthy_overlap,
                faulty_overlap,
            ),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty splits overlap and the loss is lower on validation than on new text."""
    loss = evidence.number("loss")
    fresh = evidence.number("fresh")
    known = evidence.number("known")
    return known.faulty > 0.5 > known.healthy and fresh.faulty - loss.faulty > fresh.healthy - loss.healthy
