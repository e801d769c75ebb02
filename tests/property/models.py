"""Small models with prime-sized dimensions, so that no swapped axis can pass."""

from __future__ import annotations

from typing import Any, get_args

import torch

from glassformer.config import ModelConfig, Positions
from glassformer.model.build import build_model
from glassformer.model.families import Decoder, Encoder, EncoderDecoder, Model

VOCAB = 31
POSITIONS: tuple[str, ...] = get_args(Positions)


def tiny(**changes: Any) -> ModelConfig:
    """3 layers, 6 heads of 10, width 22, hidden 37: all different."""
    shape: dict[str, Any] = {
        "layers": 3, "heads": 6, "head_width": 10, "width": 22, "hidden": 37, "context": 29,
        "relative_buckets": 8, "relative_max_distance": 16,
    }  # fmt: skip
    return ModelConfig(**{**shape, **changes})


def as_if_trained(config: ModelConfig) -> Model:
    """A model whose every parameter is away from its first value, with logits that spread by about 1."""
    model = build_model(config, VOCAB, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            table = "embedding" in name or "score_positions" in name
            parameter.add_(torch.randn(parameter.shape, generator=generator) * (0.3 if table else 0.1))
    return model.eval().requires_grad_(False)


def decoder(config: ModelConfig) -> Decoder:
    """A decoder as if trained."""
    model = as_if_trained(config)
    assert isinstance(model, Decoder)
    return model


def encoder(**changes: Any) -> Encoder:
    """An encoder as if trained."""
    model = as_if_trained(tiny(family="encoder", **changes))
    assert isinstance(model, Encoder)
    return model


def encoder_decoder(**changes: Any) -> EncoderDecoder:
    """An encoder-decoder as if trained."""
    model = as_if_trained(tiny(family="encoder-decoder", **changes))
    assert isinstance(model, EncoderDecoder)
    return model


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    """Random ids (rows, length)."""
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))
