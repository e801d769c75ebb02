"""Case: the mask is applied after the softmax."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.model.attention import NO_HOOKS, Mask, ScoreHooks
from glassformer.model.dropout import dropped
from glassformer_course.lab.bench import STORIES, LabTrainer, Trained, comparison_chart, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Map, Number, Point
from glassformer_course.lab.planting import attention_is

TEXT = "Once upon a time, an eager fox named Mia wished"


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
    """Compute attention with masked weights set to zero after the softmax."""
    scores = hooks.products(q / math.sqrt(q.shape[-1]) @ k.transpose(-2, -1))  # (B, H, T, S)
    weights = hooks.pattern(hooks.scores(scores).softmax(dim=-1) * mask.allowed_tensor(scores))  # (B, H, T, S)
    return dropped(weights, dropout, generator) @ v, weights if explicit else None


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: every attention layer applies its mask after the softmax."""
    with attention_is(attend):
        yield


class MaskedModel(NamedTuple):
    """A trained model with its measurements."""

    model: Trained
    sums: list[Point]  # (position, sum of the attention weights of its token)
    moved: float  # largest change of earlier logits if the last token changes
    map: Map


def see(trainer: LabTrainer, name: str) -> MaskedModel:
    """Train a model and measure its attention sums and the effect of the last token on earlier logits."""
    trained = trainer.train(STORIES, 200)
    ids = trained.tokenizer.encode(TEXT)
    sums: list[Point] = [
        (position, float(total))
        for position, total in enumerate(trained.attention_weights(ids)[0].sum(dim=-1), start=1)
    ]
    first = torch.tensor([ids])
    second = torch.tensor([[*ids[:-1], ids[0]]])
    with torch.no_grad():
        moved = float((trained.model(first) - trained.model(second))[0, :-1].abs().max())
    return MaskedModel(trained, sums, moved, trained.map(name, ids))


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the row sums of attention maps, and the effect of the last token on earlier logits."""
    healthy, faulty = trainer.run_both(lambda name: see(trainer, name))
    return Evidence(
        charts=[
            loss_chart(healthy.model, faulty.model),
            comparison_chart(
                "sum of a token's attention weights", "position of the token", "sum", healthy.sums, faulty.sums
            ),
        ],
        maps=[healthy.map, faulty.map],
        numbers=[
            Number("first", "sum of the first token's weights", healthy.sums[0][1], faulty.sums[0][1]),
            Number("moved", "change of earlier logits if the last token changes", healthy.moved, faulty.moved),
            last_losses(healthy.model, faulty.model),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the first row of the faulty map does not sum to 1 and a later token changes earlier logits."""
    first = evidence.number("first")
    moved = evidence.number("moved")
    return abs(first.healthy - 1) < 1e-3 and first.faulty < 0.5 and moved.healthy == 0 and moved.faulty > 1e-3
