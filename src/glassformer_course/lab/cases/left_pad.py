"""Case: with padding on the left, positions are counted from the padding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glassformer.base.config import SampleConfig
from glassformer.generation.decoding import generate
from glassformer.model import transformer
from glassformer.model.threads import threads
from glassformer.text.batches import Batch
from glassformer_course.lab.bench import LabTrainer, Trained, comparison_chart
from glassformer_course.lab.cases.pad_loss import sentences
from glassformer_course.lab.evidence import Evidence, Number, Point, averaged
from glassformer_course.lab.planting import replaced

SETTINGS: dict[str, dict[str, Any]] = {"data": {"document": "line", "windows": "documents"}}
PROMPTS = ["On a", "There once was an honest fox named Mia who longed for a"]
MOST = 14  # tokens of padding before a row


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the first column is position 0, even if it is padding."""

    def token_positions(real: Tensor, already: Tensor | int = 0) -> Tensor:
        return torch.arange(real.shape[1], device=real.device).expand(real.shape) + already  # (B, T)

    with replaced((transformer, "token_positions", token_positions)):
        yield


def with_padding(trained: Trained) -> list[Point]:
    """Return a point (number of padding tokens before each row, loss of the rows) for each amount of padding."""
    rows = [row for row in trained.task.held_out(1500) if len(row) <= trained.config.model.context - MOST]
    batch = Batch.from_rows(rows)
    points = list[Point]()
    for count in range(0, MOST + 1, 2):
        padding = torch.zeros(len(batch.inputs), count, dtype=torch.long)  # (B, count)
        inputs = torch.cat([padding, batch.inputs], dim=1)  # (B, count + T)
        real = torch.cat([padding.bool(), batch.attention_mask], dim=1)  # (B, count + T)
        with torch.no_grad():
            logits = trained.model(inputs, real)[:, count:]  # (B, T, V)
        points.append((count, float(cross_entropy(logits[batch.attention_mask], batch.targets[batch.attention_mask]))))
    return points


def together(trained: Trained, prompts: list[str]) -> str:
    """Return the continuation of the first prompt, generated in one batch with the other prompts."""
    ids = [[trained.tokenizer.start_id, *trained.tokenizer.encode(prompt)] for prompt in prompts]
    steps = generate(trained.decoder, ids, SampleConfig(tokens=12, temperature=0), cached=False)
    return trained.tokenizer.decode([step.tokens[step.rows.index(0)] for step in steps])


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the losses of rows with and without padding, and continuations of a prompt alone and in a batch."""
    with threads(1):
        model = trainer.train(SETTINGS, 240, files={"source": sentences(200)})
    healthy, faulty = trainer.run_both(
        lambda _: (with_padding(model), together(model, PROMPTS[:1]), together(model, PROMPTS))
    )
    curves = averaged(model.losses)
    return Evidence(
        charts=[
            comparison_chart("training loss", "step", "nats per token", curves, curves),
            comparison_chart(
                "loss of rows with padding before them", "tokens of padding", "nats per token", healthy[0], faulty[0]
            ),
        ],
        samples={
            f"healthy, alone: {PROMPTS[0].strip()} …": [healthy[1]],
            f"faulty, alone: {PROMPTS[0].strip()} …": [faulty[1]],
            f"healthy, in a batch with a longer prompt: {PROMPTS[0].strip()} …": [healthy[2]],
            f"faulty, in a batch with a longer prompt: {PROMPTS[0].strip()} …": [faulty[2]],
        },
        numbers=[
            Number("alone", "loss of rows without padding", healthy[0][0][1], faulty[0][0][1]),
            Number(
                "padded", f"loss of the same rows after {MOST} tokens of padding", healthy[0][-1][1], faulty[0][-1][1]
            ),
            Number(
                "same",
                "same continuation alone and in a batch (1: yes, 0: no)",
                *(float(result[1] == result[2]) for result in (healthy, faulty)),
            ),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether padding raises only the loss of the faulty model."""
    alone = evidence.number("alone")
    padded = evidence.number("padded")
    rise = padded.faulty - alone.faulty
    return abs(alone.healthy - alone.faulty) < 1e-4 and abs(padded.healthy - alone.healthy) < 1e-3 and rise > 0.05
