"""Case: source and target are swapped, so the encoder reads the text that the decoder must generate."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.inspection.trace import trace
from glassformer.model.transformer import EncoderDecoder
from glassformer.tasks import Translator
from glassformer_course.lab.bench import LabTrainer, Trained, last_losses, loss_chart, rounded
from glassformer_course.lab.evidence import Evidence, Map, Number
from glassformer_course.lab.planting import replaced

LETTERS = "abcdefgh"
SHORTEST = 3
LONGEST = 6
SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"layers": 1, "context": LONGEST + 2, "norm": "rmsnorm"},
    "tokenizer": {"kind": "characters"},
    "train": {"task": "translate", "batch": 32, "optimizer": "muon"},
}


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the model swaps its arguments source and target, in training and evaluation."""
    original_hidden_states = EncoderDecoder.hidden_states

    def hidden_states(self: EncoderDecoder, source: Tensor, target: Tensor, real: Tensor | None = None) -> Tensor:
        width = target.shape[1]
        padded_source = torch.nn.functional.pad(source, (0, max(0, width - source.shape[1])))  # (B, at least T)
        return original_hidden_states(self, target, padded_source)[:, :width]  # (B, T, D)

    with replaced((EncoderDecoder, "hidden_states", hidden_states)):
        yield


def texts(count: int) -> dict[str, str]:
    """Return lines of random letters, and the same lines reversed."""
    numbers = random.Random(0)
    lines = ["".join(numbers.choices(LETTERS, k=numbers.randint(SHORTEST, LONGEST))) for _ in range(count)]
    return {"source": "\n".join(lines) + "\n", "target": "\n".join(line[::-1] for line in lines) + "\n"}


def see(trainer: LabTrainer, name: str) -> tuple[Trained, Map, list[str], float]:
    """Return the trained model, a cross-attention map, some outputs, and the fraction of right outputs."""
    trained = trainer.train(SETTINGS, 200, files=texts(2000))
    pairs = list(islice(trained.data.validation.texts(), 100))
    translator = Translator(trained.model, trained.tokenizer, trained.tokenizer, trained.config)
    settings = SampleConfig(tokens=LONGEST + 1, temperature=0)
    outputs = [sample.text for sample in translator.generate([source for source, _ in pairs], settings)]
    right = sum(text == target for text, (_, target) in zip(outputs, pairs, strict=True)) / len(pairs)
    lines = [f"{source} -> {text}" for text, (source, _) in list(zip(outputs, pairs, strict=True))[:5]]
    return trained, cross_map(trained, name), lines, right


def cross_map(trained: Trained, name: str) -> Map:
    """Return a cross-attention map of the decoder for one validation pair, passed to the model as in training."""
    pairs = [(row.source, row.inputs) for row in trained.task.held_out(None) if row.source is not None]
    longest = next(pair for pair in pairs if len(pair[0]) == len(pair[1]) >= LONGEST)
    source, target = (torch.tensor([ids.tolist()]) for ids in longest)  # (1, S), (1, T)
    model_trace = trace(trained.model, source, target)
    cross = model_trace.stack.blocks[0].cross
    assert cross is not None
    assert model_trace.source is not None
    source_ids = model_trace.source.ids[0].tolist()  # after the model swapped them
    target_ids = model_trace.stack.ids[0].tolist()
    return Map(name, trained.labels(target_ids), trained.labels(source_ids), rounded(cross.pattern[0, 0]))


def observe(trainer: LabTrainer) -> Evidence:
    """Compare losses, cross-attention maps, and the outputs for five sources."""
    (healthy, healthy_map, healthy_lines, healthy_right), (faulty, faulty_map, faulty_lines, faulty_right) = (
        trainer.run_both(lambda name: see(trainer, name))
    )
    return Evidence(
        charts=[loss_chart(healthy, faulty)],
        maps=[healthy_map, faulty_map],
        samples={"healthy: outputs for five sources": healthy_lines, "faulty: outputs for five sources": faulty_lines},
        numbers=[
            last_losses(healthy, faulty),
            Number("right", "fraction of sources reversed correctly", healthy_right, faulty_right),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty model's loss is lower although its outputs are not better."""
    loss = evidence.number("loss")
    right = evidence.number("right")
    return loss.faulty < loss.healthy and right.faulty <= right.healthy
