"""A run whose weights are drawn: for benchmarks of what a model of some shape costs, whatever it has learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from glassformer.base.config import Config
from glassformer.base.files import write_folder
from glassformer.model.build import build_model
from glassformer.model.weights import save_tensors
from glassformer.runs.folder import create_run
from glassformer.text.tokenizers import train_tokenizer


def make_run(folder: Path, model: dict[str, Any], alphabet: str, spread: float) -> None:
    """Write a run on characters.

    Args:
        folder: of the run.
        model: its settings.
        alphabet: the characters that it knows.
        spread: the standard deviation of what is added to each fresh weight: as large as makes logits differ.
    """
    config = Config.from_dict({"model": model, "tokenizer": {"kind": "characters"}})
    tokenizer = train_tokenizer(config.tokenizer, [alphabet * 4])
    built = build_model(config.model, tokenizer.vocab_size)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * spread)
    run = create_run(folder, config, {"data": {"source": "none", "text_hash": "0", "tokens": "none"}})
    tokenizer.save(run.tokenizer_file)

    def fill(place: Path) -> None:
        save_tensors(dict(built.state_dict()), place / "model.safetensors")
        (place / "state.json").write_text("{}", encoding="utf-8")

    write_folder(run.checkpoints / "step-000001", fill)
    for which in ("best", "last"):
        run.point(which, run.checkpoints / "step-000001")
