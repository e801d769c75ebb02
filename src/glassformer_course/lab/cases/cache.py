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
from glassformer_course.lab.bench import STORIES, LabTrainer, Trained, comparison_chart
from glassformer_course.lab.evidence import Evidence, Number, Point, averaged
from glassformer_course.lab.planting import replaced

PROMPT = "Once upon a time, "
TEXT = "Once upon a time, an eager fox named Mia wished for a golden hat. On a snowy morning"


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the first token of every forward pass gets position 0."""
    original_forward = Embedding.forward

    def forward(self: Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
        return original_forward(self, tokens, positions - positions[:, :1])  # (B, T, D)

    with replaced((Embedding, "forward", forward), (logit_readers, "fast_decoder", lambda *_: None)):
        yield


def logit_differences(trained: Trained) -> list[Point]:
    """Return a point (position, largest difference of the logits with and without a cache) for each position."""
    ids = torch.tensor([trained.tokenizer.encode(TEXT)])
    cache = Cache(trained.config.model, 1, ids.shape[1], ids.device, torch.float32)
    with torch.no_grad():
        full_logits = trained.model(ids)[0]  # (T, V)
        cached_logits = torch.cat(
            [trained.model(ids[:, position : position + 1], None, cache)[0] for position in range(ids.shape[1])]
        )  # (T, V)
    return [
        (position, float(difference))
        for position, difference in enumerate((full_logits - cached_logits).abs().amax(dim=1), start=1)
    ]


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the logits and the samples of one model with and without a cache."""
    with threads(1):
        model = trainer.train(STORIES, 240)
    healthy, faulty = trainer.run_both(
        lambda _: (logit_differences(model), model.continuation(PROMPT, cached=True), model.continuation(PROMPT))
    )
    curves = averaged(model.losses)
    return Evidence(
        charts=[
            comparison_chart("training loss", "step", "nats per token", curves, curves),
            comparison_chart(
                "logits with a cache and without", "position", "largest difference", healthy[0], faulty[0]
            ),
        ],
        samples={
            f"healthy, with a cache: {PROMPT.strip()} …": [healthy[1]],
            f"faulty, with a cache: {PROMPT.strip()} …": [faulty[1]],
            f"healthy, without a cache: {PROMPT.strip()} …": [healthy[2]],
            f"faulty, without a cache: {PROMPT.strip()} …": [faulty[2]],
        },
        numbers=[
            Number("first", "difference of the logits at the first position", healthy[0][0][1], faulty[0][0][1]),
            Number(
                "largest",
                "largest difference at any position",
                *(max(y for _, y in each[0]) for each in (healthy, faulty)),
            ),
            Number("loss", "validation loss at the end", model.validation[-1][1], model.validation[-1][1]),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the logits differ only in the faulty model, and only after the first position."""
    first = evidence.number("first")
    largest = evidence.number("largest")
    return max(first.healthy, first.faulty, largest.healthy) < 1e-3 < 0.1 < largest.faulty
