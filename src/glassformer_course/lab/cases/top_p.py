"""Case: top-p sampling drops the token that crosses p, which is the most likely one if the model is certain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.generation import decoding, sampling
from glassformer.generation.decoding import generate
from glassformer.model.threads import threads
from glassformer_course.lab.bench import STORIES, LabTrainer, Trained, comparison_chart
from glassformer_course.lab.evidence import Evidence, Number, Point, averaged, mean
from glassformer_course.lab.planting import replaced

PROMPT = "Once upon a time, "
P = 0.9


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: keep a token only if the cumulative probability, including that of the token, is at most p."""
    original_probabilities = sampling.row_probabilities

    def faulty(logits: Tensor, settings: SampleConfig, previous: Sequence[Sequence[int]]) -> Tensor:
        p = original_probabilities(logits, settings.model_copy(update={"top_p": None}), previous)  # (B, V)
        if settings.top_p is None or settings.top_p == 1:
            return p
        ordered, ids = p.sort(dim=-1, descending=True, stable=True)  # (B, V)
        keep = torch.zeros_like(p).scatter(-1, ids, (ordered.cumsum(dim=-1) <= settings.top_p).double())  # (B, V)
        return p.log().masked_fill(keep == 0, -1e9).softmax(dim=-1)  # (B, V)

    with replaced((sampling, "row_probabilities", faulty), (decoding, "row_probabilities", faulty)):
        yield


def probabilities(trained: Trained) -> list[Point]:
    """Return points (p, mean probability of sampling the likeliest token); p is the model's probability of this token.

    Positions with similar p form one point.
    """
    tokens = trained.data.validation.source.tokens[:1024]
    ids = torch.tensor(tokens[: len(tokens) // 32 * 32].reshape(-1, 32).tolist())  # (B, T)
    with torch.no_grad():
        logits = trained.model(ids).flatten(0, 1)  # (B T, V)
    highest, likeliest = logits.double().softmax(dim=-1).max(dim=-1)  # (B T)
    sampled = sampling.row_probabilities(logits, SampleConfig(temperature=1, top_p=P), [()] * len(logits))
    sampled = sampled.gather(1, likeliest[:, None])[:, 0]  # (B T)
    bins = [((edge + 0.5) / 10, (highest * 10).long().clamp(max=9) == edge) for edge in range(10)]
    return [(middle, float(sampled[inside].mean())) for middle, inside in bins if bool(inside.any())]


def sampled_text(trained: Trained, p: float) -> str:
    """Return a continuation of the prompt, sampled with top-p."""
    settings = SampleConfig(tokens=30, temperature=1, top_p=p)
    steps = generate(trained.decoder, [trained.tokenizer.encode(PROMPT)], settings)
    return trained.tokenizer.decode([step.tokens[0] for step in steps])


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the samples of one model, and the probability of sampling its most likely token."""
    with threads(1):
        model = trainer.train(STORIES, 240)
    healthy, faulty = trainer.run_both(
        lambda _: (probabilities(model), sampled_text(model, P), sampled_text(model, 1.0))
    )
    curves = averaged(model.losses)
    sure = [mean(sampled for middle, sampled in result[0] if middle > P) for result in (healthy, faulty)]
    unsure = [mean(sampled for middle, sampled in result[0] if middle < 0.5) for result in (healthy, faulty)]
    return Evidence(
        charts=[
            comparison_chart("training loss", "step", "nats per token", curves, curves),
            comparison_chart(
                f"sampling the most likely token, at top-p {P}",
                "probability from the model",
                "probability of sampling it",
                healthy[0],
                faulty[0],
            ),
        ],
        samples={
            f"healthy, top-p {P}: {PROMPT.strip()} …": [healthy[1]],
            f"faulty, top-p {P}: {PROMPT.strip()} …": [faulty[1]],
            f"healthy, top-p 1: {PROMPT.strip()} …": [healthy[2]],
            f"faulty, top-p 1: {PROMPT.strip()} …": [faulty[2]],
        },
        numbers=[
            Number(
                "sure",
                f"probability of sampling the most likely token where the model gives it over {P}",
                sure[0],
                sure[1],
            ),
            Number(
                "unsure",
                "probability of sampling the most likely token where the model gives it less than 0.5",
                unsure[0],
                unsure[1],
            ),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty sampler rarely samples tokens of which the model is certain."""
    sure = evidence.number("sure")
    return sure.healthy > 0.9 and sure.faulty < 0.1
