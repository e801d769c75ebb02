"""Case: the mask hides the wrong triangle, and the softmax is over the queries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from glassformer.model.attention import NO_HOOKS, Mask, ScoreHooks
from glassformer_course.lab.bench import STORIES, LabTrainer, Trained, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Map, Number
from glassformer_course.lab.planting import attention_is

TEXT = "Once upon a time, an eager fox named Mia wished"
PROMPT = "Once upon a time, "


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    dropout: float = 0.0,
    explicit: bool = False,
    hooks: ScoreHooks = NO_HOOKS,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention with the mask transposed and the softmax over the queries."""
    scores = hooks.products(q / math.sqrt(q.shape[-1]) @ k.transpose(-2, -1))  # (B, H, T, S)
    scores = scores.masked_fill(~mask.allowed_tensor(scores).transpose(-2, -1), -math.inf)  # (B, H, T, S)
    weights = hooks.pattern(hooks.scores(scores).softmax(dim=-2))  # (B, H, T, S)
    return weights @ v, weights if explicit else None


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: every attention layer makes both mistakes."""
    with attention_is(attend):
        yield


def see(trainer: LabTrainer, name: str) -> tuple[Trained, Map, str]:
    """Return the trained model, an attention map and a continuation of the prompt."""
    trained = trainer.train(STORIES, 200)
    return trained, trained.map(name, trained.tokenizer.encode(TEXT)), trained.continuation(PROMPT)


def observe(trainer: LabTrainer) -> Evidence:
    """Compare attention maps, their row and column sums, and continuations of the prompt."""
    (healthy, healthy_map, healthy_text), (faulty, faulty_map, faulty_text) = trainer.run_both(
        lambda name: see(trainer, name)
    )
    return Evidence(
        charts=[loss_chart(healthy, faulty)],
        maps=[healthy_map, faulty_map],
        samples={f"healthy: {PROMPT.strip()} …": [healthy_text], f"faulty: {PROMPT.strip()} …": [faulty_text]},
        numbers=[
            Number(
                "row",
                "sum of the last row of the map",
                *(sum(attention_map.weights[-1]) for attention_map in (healthy_map, faulty_map)),
            ),
            Number(
                "column",
                "sum of the last column of the map",
                *(sum(row[-1] for row in attention_map.weights) for attention_map in (healthy_map, faulty_map)),
            ),
            last_losses(healthy, faulty),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the columns of the faulty map sum to 1 and its rows do not."""
    row = evidence.number("row")
    column = evidence.number("column")
    return abs(row.healthy - 1) < 1e-3 and abs(row.faulty - 1) > 0.01 and abs(column.faulty - 1) < 1e-3
