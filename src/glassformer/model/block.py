"""The block that all three families are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.attention import Attention
from glassformer.model.cache import LayerCache
from glassformer.model.feedforward import FeedForward
from glassformer.model.masks import Mask
from glassformer.model.normalization import make_norm
from glassformer.model.positions import Rotation


@dataclass(frozen=True)
class View:
    """What one forward pass lets its blocks see: the same for every layer."""

    mask: Mask  # of self-attention
    rotation: Rotation | None = None  # of queries and keys in self-attention
    memory: Tensor | None = None  # (B, S, D) what cross-attention looks at
    memory_mask: Mask = field(default_factory=Mask)  # of cross-attention


class Block(nn.Module):
    """Self-attention, cross-attention where there is a memory, feed-forward; each added to the residual stream.

    Pre-norm (Xiong et al. 2020) adds part(norm(x)); post-norm (Vaswani et al. 2017) normalises x + part(x).
    """

    def __init__(self, config: ModelConfig, cross: bool = False) -> None:
        super().__init__()
        self.pre = config.norm_order == "pre"
        self.attention_norm, self.attention = make_norm(config), Attention(config)
        self.cross_norm = make_norm(config) if cross else None
        self.cross = Attention(config) if cross else None
        self.feedforward_norm, self.feedforward = make_norm(config), FeedForward(config)
        self.dropout = nn.Dropout(config.dropout_residual)

    def forward(self, x: Tensor, view: View, cache: LayerCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        if self.pre:
            seen = self.attention(self.attention_norm(x), view.mask, None, view.rotation, cache)  # (B, T, D)
            x = x + self.dropout(seen)  # (B, T, D)
            if self.cross is not None and self.cross_norm is not None:
                seen = self.cross(self.cross_norm(x), view.memory_mask, view.memory, None, cache)  # (B, T, D)
                x = x + self.dropout(seen)  # (B, T, D)
            return x + self.dropout(self.feedforward(self.feedforward_norm(x)))  # (B, T, D)
        seen = self.attention(x, view.mask, None, view.rotation, cache)  # (B, T, D)
        x = self.attention_norm(x + self.dropout(seen))  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            seen = self.cross(x, view.memory_mask, view.memory, None, cache)  # (B, T, D)
            x = self.cross_norm(x + self.dropout(seen))  # (B, T, D)
        return self.feedforward_norm(x + self.dropout(self.feedforward(x)))  # (B, T, D)
