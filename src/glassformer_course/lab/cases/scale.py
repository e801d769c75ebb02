"""The scores of attention are not divided by √d."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from glassformer_course.lab.bench import Bench, Trained, compared, last_losses, loss_chart
from glassformer_course.lab.evidence import FAULTY, HEALTHY, Evidence, Map, Number
from glassformer_course.lab.planting import attention_with

SETTINGS = {"model": {"head_width": 64}}
TEXT = "Once upon a time, an eager fox named Mia wished"


@contextmanager
def fault() -> Iterator[None]:
    """√d is taken for 1."""
    with attention_with(SimpleNamespace(sqrt=lambda number: 1.0, inf=math.inf)):
        yield


def looked_at(found: Trained) -> tuple[float, Map]:
    """How many tokens heads look at in the last row, as e to the entropy of its weights; and the first head."""
    ids = found.tokenizer.encode(TEXT)
    weights = found.heads(ids)[:, -1]  # (H, T)
    entropy = -(weights * weights.clamp(min=1e-12).log()).sum(dim=-1)  # (H)
    return float(entropy.exp().mean()), found.map("", ids)


def observe(bench: Bench) -> Evidence:
    """How widely heads look, from before the first step on."""
    healthy, faulty = bench.both(lambda _: bench.train(SETTINGS, 240, looked_at))
    first = [found.watched[0][1] for found in (healthy, faulty)]
    widths = [[(step, width) for step, (width, _) in found.watched] for found in (healthy, faulty)]
    return Evidence(
        charts=[
            loss_chart(healthy, faulty),
            compared("how many tokens a head looks at", "step", "e^entropy of its weights", *widths),
        ],
        maps=[
            Map(f"{name}, before the first step", shown.rows, shown.columns, shown.weights)
            for name, (_, shown) in zip((HEALTHY, FAULTY), first, strict=True)
        ],
        numbers=[
            Number("width", "tokens that a head looks at, before the first step", first[0][0], first[1][0]),
            last_losses(healthy, faulty),
        ],
    )


def shows(found: Evidence) -> bool:
    """Heads are sharp before they have learnt anything."""
    width = found.number("width")
    return width.faulty < 0.6 * width.healthy
