"""Case: with a cache, the positions of new tokens are counted without the tokens in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from glassformer.generation import logit_readers
from glassformer.model.cache import Cache
from glassformer.model.threads import threads
from glassformer.model.transformer import Embedding
from glassformer_course.lab.bench import STORIES, LabTrainer, Trained, compared
from glassformer_course.lab.evidence import Evidence, Number, Point, averaged
from glassformer_course.lab.planting import replaced

PROMPT = "Once upon a time, "
TEXT = "Once upon a time, an eager fox named Mia wished for a golden hat. On a snowy morning"


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the first token of every forward pass gets position 0."""
    own = Embedding.forward

    def forward(self: Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
        return own(self, tokens, positions - positions[:, :1])  # (B, T, D)

    with replaced((Embedding, "forward", forward), (logit_readers, "fast_decoder", lambda *_: None)):
        yield


def logit_differences(found: Trained) -> list[Point]:
    """Return (position, largest difference between the logits with and without a cache)."""
    ids = torch.tensor([found.tokenizer.encode(TEXT)])
    cache = Cache(found.config.model, 1, ids.shape[1], ids.device, torch.float32)
    with torch.no_grad():
        whole = found.model(ids)[0]  # (T, V)
        singly = torch.cat([found.model(ids[:, at : at + 1], None, cache)[0] for at in range(ids.shape[1])])  # (T, V)
    return [(position, float(size)) for position, size in enumerate((whole - singly).abs().amax(dim=1), start=1)]


def observe(bench: LabTrainer) -> Evidence:
    """Compare the logits and the samples of one model with and without a cache."""
    with threads(1):
        model = bench.train(STORIES, 240)
    fine, wrong = bench.both(
        lambda _: (logit_differences(model), model.continued(PROMPT, cached=True), model.continued(PROMPT))
    )
    curves = averaged(model.losses)
    return Evidence(
        charts=[
            compared("training loss", "step", "nats per token", curves, curves),
            compared("logits with a cache and without", "position", "largest difference", fine[0], wrong[0]),
        ],
        samples={
            f"healthy, with a cache: {PROMPT.strip()} …": [fine[1]],
            f"faulty, with a cache: {PROMPT.strip()} …": [wrong[1]],
            f"healthy, without a cache: {PROMPT.strip()} …": [fine[2]],
            f"faulty, without a cache: {PROMPT.strip()} …": [wrong[2]],
        },
        numbers=[
            Number("first", "difference of the logits at the first position", fine[0][0][1], wrong[0][0][1]),
            Number(
                "largest", "largest difference at any position", *(max(y for _, y in each[0]) for each in (fine, wrong))
            ),
            Number("loss", "validation loss at the end", model.validation[-1][1], model.validation[-1][1]),
        ],
    )


def shows(found: Evidence) -> bool:
    """Return whether the logits differ in the faulty model alone, and only after the first position."""
    first = found.number("first")
    largest = found.number("largest")
    return max(first.healthy, first.faulty, largest.healthy) < 1e-3 < 0.1 < largest.faulty
