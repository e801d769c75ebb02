"""The block that all three families are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

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

    `site` is its name, such as `dec.0`, by which `config.removed_heads` knows its heads; `cross`: there is a memory.
    """

    def __init__(self, config: ModelConfig, site: str, cross: bool = False) -> None:
        super().__init__()
        self.order = config.norm_order
        self.attention_norm, self.attention = make_norm(config), Attention(config, f"{site}.self")
        self.cross_norm = make_norm(config) if cross else None
        self.cross = Attention(config, f"{site}.cross") if cross else None
        self.feedforward_norm, self.feedforward = make_norm(config), FeedForward(config)
        self.dropout = nn.Dropout(config.dropout_residual)

    def forward(self, x: Tensor, view: View, cache: LayerCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        attend = partial(self.attention, mask=view.mask, rotation=view.rotation, cache=cache)
        x = self._add(attend, self.attention_norm, x)  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            attend = partial(self.cross, mask=view.memory_mask, memory=view.memory, cache=cache)
            x = self._add(attend, self.cross_norm, x)  # (B, T, D)
        return self._add(self.feedforward, self.feedforward_norm, x)  # (B, T, D)

    def _add(self, part: Callable[[Tensor], Tensor], norm: nn.Module, x: Tensor) -> Tensor:
        """The stream x (B, T, D) with what a part adds to it."""
        match self.order:
            case "pre":  # Xiong et al. 2020
                return x + self.dropout(part(norm(x)))  # (B, T, D)
            case "post":  # Vaswani et al. 2017
                return norm(x + self.dropout(part(x)))  # (B, T, D)
            case "output":  # OLMo 2: Team OLMo 2025
                return x + self.dropout(norm(part(x).to(x.dtype)))  # (B, T, D); not in bf16 under autocast
