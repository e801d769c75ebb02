"""Normalisation: keeps the size of each token's vector in hand."""

from __future__ import annotations

from torch import nn

from glassformer.config import ModelConfig


def make_norm(config: ModelConfig) -> nn.Module:
    """A norm over the width: LayerNorm (Ba et al. 2016), RMSNorm (Zhang and Sennrich 2019), or nothing."""
    match config.norm:
        case "layernorm":
            return nn.LayerNorm(config.width, eps=config.eps, bias=config.norm_bias)
        case "rmsnorm":
            return nn.RMSNorm(config.width, eps=config.eps)
        case "none":
            return nn.Identity()
