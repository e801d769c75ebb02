"""Hidden scores get a finite negative number instead of minus infinity."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from glassformer_course.lab.bench import Bench, Trained, compared, last_losses, loss_chart
from glassformer_course.lab.evidence import Evidence, Map, Number
from glassformer_course.lab.planting import attention_with

LETTERS = "abcdefgh"
SETTINGS: dict[str, dict[str, Any]] = {"model": {"context": 12}, "tokenizer": {"kind": "characters"}}
HIDDEN = 5.0
"""Hidden scores are lowered by so much. In the projects it was 10,000 or more: there it took longer."""


@contextmanager
def fault() -> Iterator[None]:
    """A number in the place of infinity."""
    with attention_with(SimpleNamespace(sqrt=math.sqrt, inf=HIDDEN)):
        yield


def letters() -> str:
    """A text of letters, each drawn at random: nothing in it can be foreseen."""
    return "".join(random.Random(0).choices(LETTERS, k=20_000)) + "\n"


def ahead(found: Trained) -> float:
    """The largest share of attention that a head gives to later tokens, on the first validation row."""
    ids = found.task.held_out(None)[0].inputs.tolist()
    return max(float(found.heads(ids, layer).triu(1).sum(dim=-1).mean(dim=-1).max()) for layer in (0, 1))


def see(bench: Bench, name: str) -> tuple[Trained, Map]:
    """Train and look, at the head that looks ahead the most."""
    found = bench.train(SETTINGS, 240, ahead, {"source": letters()})
    ids = found.task.held_out(None)[0].inputs[:10].tolist()
    layer, head = divmod(
        int(torch.stack([found.heads(ids, each).triu(1).sum(dim=(1, 2)) for each in (0, 1)]).argmax()), 2
    )
    return found, found.map(name, ids, head, layer)


def observe(bench: Bench) -> Evidence:
    """Compare the share of attention on later tokens during training."""
    (healthy, fine), (faulty, wrong) = bench.both(lambda name: see(bench, name))
    first, last = ([found.watched[at][1] for found in (healthy, faulty)] for at in (0, -1))
    return Evidence(
        charts=[
            replace(loss_chart(healthy, faulty, floor=False), level=("entropy of the letters", math.log(len(LETTERS)))),
            compared("attention on later tokens", "step", "share", healthy.watched, faulty.watched),
        ],
        maps=[fine, wrong],
        numbers=[
            Number("first", "share of attention on later tokens, before the first step", *first),
            Number("share", "the same at the end", *last),
            last_losses(healthy, faulty),
        ],
    )


def shows(found: Evidence) -> bool:
    """A little at first, much more later."""
    first = found.number("first")
    share = found.number("share")
    return share.healthy == 0 and 0 < first.faulty < 0.1 and share.faulty > 2 * first.faulty
