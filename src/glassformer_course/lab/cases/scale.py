"""Case: the attention scores are not divided by √d."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from glassformer_course.lab.bench import LabTrainer, Trained, comparison_chart, last_losses, loss_chart
from glassformer_course.lab.evidence import FAULTY, HEALTHY, Evidence, Map, Number
from glassformer_course.lab.planting import attention_with

SETTINGS = {"model": {"head_width": 64}}
TEXT = "Once upon a time, an eager fox named Mia wished"


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the square root of the head width is replaced by 1."""
    with attention_with(SimpleNamespace(sqrt=lambda number: 1.0, inf=math.inf)):
        yield


def attention_width(trained: Trained) -> tuple[float, Map]:
    """Return the effective number of tokens that the last token attends to, and the attention map of the first head.

    The effective number is e^entropy of the attention weights, averaged over heads.
    """
    ids = trained.tokenizer.encode(TEXT)
    weights = trained.attention_weights(ids)[:, -1]  # (H, T)
    entropy = -(weights * weights.clamp(min=1e-12).log()).sum(dim=-1)  # (H)
    return float(entropy.exp().mean()), trained.map("", ids)


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the effective number of tokens that heads attend to, before and during training."""
    healthy, faulty = trainer.run_both(lambda _: trainer.train(SETTINGS, 240, attention_width))
    first = [trained.watched[0][1] for trained in (healthy, faulty)]
    widths = [[(step, width) for step, (width, _) in trained.watched] for trained in (healthy, faulty)]
    return Evidence(
        charts=[
            loss_chart(healthy, faulty),
            comparison_chart("tokens that a head attends to", "step", "e^entropy of its weights", *widths),
        ],
        maps=[
            Map(f"{name}, before the first step", attention_map.rows, attention_map.columns, attention_map.weights)
            for name, (_, attention_map) in zip((HEALTHY, FAULTY), first, strict=True)
        ],
        numbers=[
            Number(
                "width",
                "effective number of tokens that a head attends to, before the first step",
                first[0][0],
                first[1][0],
            ),
            last_losses(healthy, faulty),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty heads attend to far fewer tokens before training."""
    width = evidence.number("width")
    return width.faulty < 0.6 * width.healthy
