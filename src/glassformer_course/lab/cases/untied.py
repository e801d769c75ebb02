"""Case: the output layer and the embedding should be one matrix but are two, and one is lost by saving and loading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig
from glassformer.model import weights
from glassformer.model.transformer import Head
from glassformer.training import checkpoint
from glassformer.training.optimizers import make_optimizers
from glassformer_course.lab.bench import LabTrainer, Trained, comparison_chart
from glassformer_course.lab.evidence import Evidence, Number, Point, averaged
from glassformer_course.lab.planting import replaced

SETTINGS: dict[str, dict[str, Any]] = {"model": {"tied": True}}
HEAD = "head.weight"
EMBEDDING = "embedding.tokens.weight"


@contextmanager
def fault() -> Iterator[None]:
    """Plant the bug: the head has its own matrix; files omit it, and loading replaces it with the embedding."""
    original_init = Head.__init__
    save = weights.save_tensors
    load = weights.load_tensors

    def init(self: Head, config: ModelConfig, vocab_size: int) -> None:
        original_init(self, config, vocab_size)
        if self.weight is None:
            self.weight = nn.Parameter(torch.empty(vocab_size, config.width))  # (V, D)

    def save_tensors(tensors: dict[str, Tensor], *given: Any) -> None:
        save({name: value for name, value in tensors.items() if name != HEAD}, *given)

    def load_tensors(path: Path) -> dict[str, Tensor]:
        tensors = load(path)
        return {**tensors, HEAD: tensors[EMBEDDING]} if EMBEDDING in tensors else tensors

    changes = (
        (Head, "__init__", init),
        (checkpoint, "save_tensors", save_tensors),
        (weights, "load_tensors", load_tensors),
    )
    with replaced(*changes):
        yield


def see(trainer: LabTrainer) -> tuple[Trained, list[Point], Trained, float]:
    """Train, save a checkpoint, load it into a new model, and continue training."""
    first = trainer.train(SETTINGS, 120)
    folder = trainer.new_folder()
    checkpoint.save_state(folder, first.model, make_optimizers(first.model, first.config.train))
    second = trainer.train(SETTINGS, 120, start=folder / "model.safetensors")
    last = first.losses[-1][0]
    return first, [*first.losses, *((last + step, loss) for step, loss in second.losses)], second, last


def observe(trainer: LabTrainer) -> Evidence:
    """Compare the losses before and after loading, and the numbers of parameters."""
    (healthy, healthy_losses, healthy_loaded, step), (faulty, faulty_losses, faulty_loaded, _) = trainer.run_both(
        lambda _: see(trainer)
    )
    before = [averaged(trained.losses)[-1][1] for trained in (healthy, faulty)]
    sizes = [sum(p.numel() for p in trained.model.parameters()) for trained in (healthy, faulty)]
    return Evidence(
        charts=[
            comparison_chart(
                f"training loss; saved and loaded at step {step:.0f}",
                "step",
                "nats per token",
                averaged(healthy_losses, 4),
                averaged(faulty_losses, 4),
            ),
        ],
        numbers=[
            Number("before", "training loss just before saving", *before),
            Number(
                "after",
                "validation loss just after loading",
                healthy_loaded.validation[0][1],
                faulty_loaded.validation[0][1],
            ),
            Number("parameters", "parameters of the model in memory", *sizes),
        ],
    )


def evidence_shows_bug(evidence: Evidence) -> bool:
    """Return whether the faulty model's loss jumps after loading, and the model has more parameters."""
    before = evidence.number("before")
    after = evidence.number("after")
    parameters = evidence.number("parameters")
    jump = after.faulty - before.faulty
    return parameters.faulty > parameters.healthy and jump > after.healthy - before.healthy + 0.5
