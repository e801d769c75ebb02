"""Attention layers with removed heads, and the numbers of the remaining heads.

`glass prune` removes heads permanently and writes their names to `model.removed_heads`; `build_model` then replaces
each attention layer that has lost a head by a `PrunedAttention`. The remaining heads keep their numbers.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.model.attention import Attention, Mask, NoProjection
from glassformer.model.cache import LayerCache
from glassformer.model.positions import Rotation
from glassformer.model.transformer import Block, Model


class PrunedAttention(Attention):
    """Attention layer with removed heads: narrower matrices, and possibly groups of unequal size.

    Args:
        config: model settings, with the removed heads in `removed_heads`.
        site: name of the attention layer in `removed_heads`, such as `dec.0.self`.

    Attributes:
        head_numbers: (H) number of each remaining query head before pruning.
        kv_index: (H) index, among the remaining key heads, of the key head that serves each query head.
        uniform_groups: whether all remaining key heads serve the same number of query heads.
    """

    def __init__(self, config: ModelConfig, site: str) -> None:
        numbers = config.kept_heads(site)
        kv_numbers = config.kept_kv_heads(site)
        super().__init__(config, len(numbers), len(kv_numbers))
        if not numbers:  # without heads there is nothing to normalize
            self.query_norm = None
            self.key_norm = None
        if not config.output_projection:
            U = config.U
            self.output = NoProjection(
                config.width, [number * U + channel for number in numbers for channel in range(U)]
            )
        self.head_numbers = numbers
        self.kv_index = [kv_numbers.index(number * config.G // config.heads) for number in numbers]
        self.uniform_groups = all(self.kv_index.count(kv) * len(kv_numbers) == len(numbers) for kv in self.kv_index)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Map (B, T, D) -> (B, T, D), as in `Attention`.

        If all heads were removed, return the bias of the output projection, or zeros if it has none.
        """
        if self.heads:
            return super().forward(x, mask, rotation, memory, cache)
        with torch.no_grad():  # only to update the cache and run the hooks
            super().forward(x, mask, rotation, memory, cache)
        return self.output(x[..., :0])  # (B, T, D)

    def compute_z(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Compute z (B, H, T, U) from queries, keys (B, G, S, K) and values (B, G, S, U)."""
        if not self.uniform_groups:
            k = torch.stack([k[:, kv] for kv in self.kv_index], dim=1)  # (B, H, S, K)
            v = torch.stack([v[:, kv] for kv in self.kv_index], dim=1)  # (B, H, S, U)
        return super().compute_z(q, k, v, mask_of_heads(self, mask))


def head_numbers(layer: Attention) -> list[int]:
    """Return the numbers of an attention layer's query heads: 0 to H - 1, unless heads were removed."""
    return layer.head_numbers if isinstance(layer, PrunedAttention) else list(range(layer.heads))


def kv_index(layer: Attention) -> list[int]:
    """Return the index of the key head that serves each query head of an attention layer, (H)."""
    if isinstance(layer, PrunedAttention):
        return layer.kv_index
    return [head * layer.kv_heads // layer.heads for head in range(layer.heads)]


def mask_of_heads(layer: Attention, mask: Mask) -> Mask:
    """Return the mask with its bias restricted to the heads of the attention layer."""
    if mask.bias is None or mask.bias.shape[1] == layer.heads:
        return mask
    return replace(mask, bias=mask.bias[:, head_numbers(layer)])  # (B or 1, H, T, S)


def replace_pruned_attentions(model: Model, config: ModelConfig) -> None:
    """Replace each attention layer that has a head in `config.removed_heads` by a `PrunedAttention`."""
    for name, stack in model.stacks.items():
        for layer, block in enumerate(stack.blocks):
            assert isinstance(block, Block)
            self_site = f"{name}.{layer}.self"
            cross_site = f"{name}.{layer}.cross"
            if len(config.kept_heads(self_site)) < config.heads:
                block.attention = PrunedAttention(config, self_site)
            if block.cross is not None and len(config.kept_heads(cross_site)) < config.heads:
                block.cross = PrunedAttention(config, cross_site)
