"""Case: masked scores get a finite negative number instead of minus infinity."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from glassformer_course.lab.bench import LabTrainer, Trained, comparison_chart, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Map, Number
from glassformer_course.lab.planting import attention_with

LETTERS = "abcdefgh"
SETTINGS: dict[str, dict[str, Any]] = {"model": {"context": 12}, "tokenizer": {"kind": "characters"}}
HIDDEN = 5.0
"""Number subtracted from masked scores. Projects with this bug subtract 10,000 or more, which models need
longer to exploit."""


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: masked scores are lowered by `HIDDEN` instead of infinity."""
    with attention_with(SimpleNamespace(sqrt=math.sqrt, inf=HIDDEN)):
        yield


def letters() -> str:
    """Return a text of random letters, which cannot be predicted."""
    return "".join(random.Random(0).choices(LETTERS, k=20_000)) + "\n"


def attention_to_later_tokens(trained: Trained) -> float:
    """Return the largest fraction of attention to later tokens among all heads, for the first validation row."""
    ids = trained.task.held_out(None)[0].inputs.tolist()
    return max(float(trained.attention_weights(ids, layer).triu(1).sum(dim=-1).mean(dim=-1).max()) for layer in (0, 1))


def see(trainer: LabTrainer, name: str) -> tuple[Trained, Map]:
    """Return the trained model and the map of the head with the most attention to later tokens."""
    trained = trainer.train(SETTINGS, 240, attention_to_later_tokens, {"source": letters()})
    ids = trained.task.held_out(None)[0].inputs[:10].tolist()
    layer, head = divmod(
        int(torch.stack([trained.attention_weights(ids, each).triu(1).sum(dim=(1, 2)) for each in (0, 1)]).argmax()), 2
    )
    return trained, trained.map(name, ids, head, layer)


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the fraction of attention to later tokens during training."""
    (healthy, healthy_map), (faulty, faulty_map) = trainer.run_both(lambda name: see(trainer, name))
    first, last = ([trained.watched[index][1] for trained in (healthy, faulty)] for index in (0, -1))
    return Evidence(
        charts=[
            replace(loss_chart(healthy, faulty, floor=False), level=("entropy of the letters", math.log(len(LETTERS)))),
            comparison_chart(
                "attention on later tokens", "step", "largest fraction of a head", healthy.watched, faulty.watched
            ),
        ],
        maps=[healthy_map, faulty_map],
        numbers=[
            Number("first", "largest fraction of a head's attention on later tokens, before the first step", *first),
            Number("share", "largest fraction of a head's attention on later tokens, at the end", *last),
            last_losses(healthy, faulty),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether only the faulty model attends to later tokens, and does so more at the end of training."""
    first = evidence.number("first")
    last = evidence.number("share")
    return last.healthy == 0 and 0 < first.faulty < 0.1 and last.faulty > 2 * first.faulty
