"""Scales of an 8-bit key-value cache, measured on random tokens.

A stored byte b represents the value b times the scale of its channel. Some channels of the keys are much larger than
others, for all tokens (Liu et al. 2024, "KIVI", section 3), so every channel has a separate scale, in keys and in
values. The scales are constants of the graph, so they are measured once, before any text is read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.model.cache import Cache
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder

LEVELS = 127  # largest 8-bit value, relative to zero
TOKENS = 256  # number of random tokens
ROOM = 1.5  # largest value that a byte can represent, relative to the largest value that was measured
SEED = 0


def cache_scales(model: Decoder) -> list[tuple[Tensor, Tensor]]:
    """Return the scales of the keys and of the values, (G, K) each, for every layer.

    Keys are measured after the rotation. Values beyond `ROOM` times the largest measured value of their channel will be
    clipped.
    """
    config = model.config
    weight = model.embedding.tokens.weight
    T = min(TOKENS, config.context)
    B = TOKENS // T
    tokens = torch.randint(model.vocab_size, (B, T), generator=torch.Generator().manual_seed(SEED))  # (B, T)
    cache = Cache(config, B, T, weight.device, weight.dtype)
    with inference(model):
        model.stack(tokens, model.embedding, None, cache=cache)
    return [(_scales(layer.keys), _scales(layer.values)) for layer in cache.layers]


def _scales(x: Tensor) -> Tensor:
    """Return the scales (G, K) of keys or values (B, G, T, K)."""
    largest = x.abs().amax(dim=(0, 2)).to(torch.float32)  # (G, K)
    return (largest * ROOM / LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
