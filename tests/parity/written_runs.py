"""Make run folders with random weights for the tests of exports, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from glassformer.base.config import Config
from glassformer.model.build import build_model
from glassformer.runs.folder import Run, create_run
from glassformer.text.tokenizers import train_tokenizer
from glassformer.training.checkpoint import TrainState, save_checkpoint

TEXTS = ["the old dog sleeps near the river; it's 7 o'clock.\n\nআমি বাংলায় গান গাই, and Größe too. "] * 40
SHAPE: dict[str, Any] = {"layers": 2, "heads": 3, "width": 66, "head_width": 22, "hidden": 50, "context": 37}
LABELS = ("ham", "spam", "other")


def make_run(
    folder: Path,
    task: str = "lm",
    tokenizer: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    **model: Any,
) -> Path:
    """Make a run of a task in `folder`, with logits that vary by about 1, and return the folder."""
    tokenizer = {"kind": "bpe", "vocab_size": 300, **(tokenizer or {})}
    sections = {"model": {**SHAPE, **model}, "tokenizer": tokenizer, "train": {"task": task}}
    config = Config.from_dict({**sections, **({"data": data} if data else {})})
    made = train_tokenizer(config.tokenizer, TEXTS, mask=task == "masked")
    two = config.two_vocabularies
    source = train_tokenizer(config.tokenizer.replace(vocab_size=290), TEXTS) if two else made
    classes = len(LABELS) if task == "classify" else None

    def add(run: Run) -> None:
        made.save(run.tokenizer_file)
        if two:
            source.save(run.source_tokenizer_file)
        if classes:
            run.save_labels(LABELS)

    run = create_run(folder, config, {"data": {"source": "none", "text_hash": "0", "tokens": "none"}}, add)
    own = None if config.model.shared_embedding else source.vocab_size
    model_ = build_model(config.model, made.vocab_size, seed=1, source_vocab_size=own, classes=classes)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model_.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.15)
    save_checkpoint(run, model_, [], TrainState(step=1), config)
    return folder
