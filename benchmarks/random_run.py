"""Runs with random weights, for benchmarks in which the weights do not matter."""

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
    """Write a run with random weights and a character tokenizer.

    Args:
        folder: the run folder.
        model: settings of the model.
        alphabet: the characters of the vocabulary.
        spread: standard deviation of the noise added to each initial weight, so that logits differ clearly.
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

    def fill(inside: Path) -> None:
        save_tensors(dict(built.state_dict()), inside / "model.safetensors")
        (inside / "state.json").write_text("{}", encoding="utf-8")

    write_folder(run.checkpoints_folder / "step-000001", fill)
    for which in ("best", "last"):
        run.point(which, run.checkpoints_folder / "step-000001")
