"""Small models with sizes that are all different, so that swapped axes cannot pass."""

from __future__ import annotations

from typing import Any, get_args

import torch

from glassformer.base.config import ModelConfig, Positions
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder, Encoder, EncoderDecoder, Model

VOCAB = 31
POSITIONS: tuple[str, ...] = get_args(Positions)


def tiny(**changes: Any) -> ModelConfig:
    """Return the settings of a model with 3 layers, 6 heads of size 10, width 22 and hidden size 37, all different."""
    shape: dict[str, Any] = {
        "layers": 3,
        "heads": 6,
        "head_width": 10,
        "width": 22,
        "hidden": 37,
        "context": 29,
        "relative_buckets": 8,
        "relative_max_distance": 16,
    }
    return ModelConfig(**{**shape, **changes})


def some_heads(family: str) -> tuple[str, ...]:
    """Return heads of `tiny` to remove: unequal groups, a key head without queries, a layer without heads."""
    own = "enc" if family == "encoder" else "dec"
    found = [(f"{own}.0.self", (0, 4, 5)), (f"{own}.1.self", range(6)), (f"{own}.2.self", (3,))]
    if family == "encoder-decoder":
        found += [("enc.0.self", (0, 1, 3)), ("dec.0.cross", (1, 4, 5)), ("dec.2.cross", range(6))]
    return tuple(f"{site}.{head}" for site, heads in found for head in heads)


def kinds(family: str) -> list[dict[str, Any]]:
    """Return the kinds of models on which masks, padding, batches and caches are tested."""
    some = {"removed_heads": some_heads(family)}
    return [
        *({"positions": name} for name in POSITIONS),
        {"norm_order": "output", "qk_norm": "whole", "kv_heads": 2, "positions": "rotary"},
        {"norm_order": "post", "head_transform": True, "qk_norm": "head"},
        {"value_width": 7, "kv_heads": 3, "positions": "rotary"},
        {"width": 24, "value_width": 4, "output_projection": False},
        {**some, "width": 24, "kv_heads": 2, "value_width": 4, "output_projection": False},
        {**some, "kv_heads": 2, "positions": "relative"},
        {**some, "kv_heads": 3, "positions": "rotary", "qk_norm": "head"},
        {**some, "kv_heads": 6, "positions": "alibi"},
    ]


def named(kind: Any) -> str | None:
    """Return the test id of a kind of model."""
    return (
        "-".join("some" if isinstance(each, tuple) else str(each) for each in kind.values())
        if isinstance(kind, dict)
        else None
    )


def as_if_trained(config: ModelConfig) -> Model:
    """Return a model with all parameters moved away from their initial values, and a logit spread of about 1."""
    model = build_model(config, VOCAB, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            table = "embedding" in name or "score_positions" in name
            parameter.add_(torch.randn(parameter.shape, generator=generator) * (0.3 if table else 0.1))
    return model.eval().requires_grad_(False)


def decoder(config: ModelConfig) -> Decoder:
    """Return a decoder as if trained."""
    model = as_if_trained(config)
    assert isinstance(model, Decoder)
    return model


def encoder(**changes: Any) -> Encoder:
    """Return an encoder as if trained."""
    model = as_if_trained(tiny(family="encoder", **changes))
    assert isinstance(model, Encoder)
    return model


def encoder_decoder(**changes: Any) -> EncoderDecoder:
    """Return an encoder-decoder as if trained."""
    model = as_if_trained(tiny(family="encoder-decoder", **changes))
    assert isinstance(model, EncoderDecoder)
    return model


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    """Return random ids (rows, length)."""
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))
