"""Case: the causal mask is off by one, so each token also sees the next token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from glassformer.model import transformer
from glassformer.model.attention import Mask
from glassformer_course.lab.bench import STORIES, LabTrainer, Trained, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Map, Number
from glassformer_course.lab.planting import replaced

TEXT = "Once upon a time, an eager fox named Mia wished"
PROMPT = "Once upon a time, "


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the causal mask allows one more position."""

    def self_attention_mask(queries: Tensor, keys: Tensor, *given: Any) -> Mask:
        return Mask(allowed=(keys[:, None, None, :] <= queries[:, None, :, None] + 1))  # (B or 1, 1, T, S)

    with replaced((transformer, "self_attention_mask", self_attention_mask)):
        yield


def see(trainer: LabTrainer, name: str) -> tuple[Trained, Map, str]:
    """Return the trained model, the map of the head with the most weight on the next token, and a continuation."""
    trained = trainer.train(STORIES, 200)
    ids = trained.tokenizer.encode(TEXT)
    head = int(trained.attention_weights(ids).diagonal(1, 1, 2).sum(dim=-1).argmax())
    return trained, trained.map(name, ids, head), trained.continuation(PROMPT)


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the losses with the entropy of the text; show attention maps and continuations of the prompt."""
    (healthy, healthy_map, healthy_text), (faulty, faulty_map, faulty_text) = trainer.run_both(
        lambda name: see(trainer, name)
    )
    weights = [torch.tensor(attention_map.weights) for attention_map in (healthy_map, faulty_map)]
    return Evidence(
        charts=[loss_chart(healthy, faulty)],
        maps=[healthy_map, faulty_map],
        samples={f"healthy: {PROMPT.strip()} …": [healthy_text], f"faulty: {PROMPT.strip()} …": [faulty_text]},
        numbers=[
            last_losses(healthy, faulty),
            Number("next", "mean weight of the map on the next token", *(float(w.diagonal(1).mean()) for w in weights)),
            Number(
                "beyond",
                "sum of the map's weights on all tokens after the next",
                *(float(w.triu(2).sum()) for w in weights),
            ),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether only the faulty model attends to the next token.

    The faulty model must also ignore all tokens after the next one, and have a lower loss than the healthy model.
    """
    beside = evidence.number("next")
    beyond = evidence.number("beyond")
    loss = evidence.number("loss")
    return beside.healthy == 0 < beside.faulty and beyond.faulty == 0 and loss.faulty < loss.healthy
