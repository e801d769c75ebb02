"""Attention of which heads were removed, and the numbers of the heads that an attention has.

`glass prune` removes heads for good and writes their names to `model.removed_heads`; `build_model` then puts a
`PrunedAttention` in the place of each attention that has lost one. The heads that are left keep their numbers.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig
from glassformer.model.attention import Attention, Mask
from glassformer.model.cache import LayerCache
from glassformer.model.positions import Rotation
from glassformer.model.transformer import Block, Stack


class PrunedAttention(Attention):
    """An `Attention` without some of its heads: narrower matrices, and key heads that serve unequal groups.

    Args:
        config: the shape of the model; its `removed_heads` say which heads are not here.
        site: the name of the attention in these, such as `dec.0.self`.

    Attributes:
        head_numbers: (H) the number that each query head had before any was removed.
        kv_index: (H) the index of the key head that serves each query head.
        uniform_groups: all key heads that are left serve equally many query heads.
    """

    def __init__(self, config: ModelConfig, site: str) -> None:
        numbers = config.kept_heads(site)
        kv_numbers = config.kept_kv_heads(site)
        super().__init__(config, len(numbers), len(kv_numbers))
        if not numbers:  # there is nothing to normalise
            self.query_norm = None
            self.key_norm = None
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
        """(B, T, D) -> (B, T, D), as `Attention.forward`; without any head, the output projection's bias."""
        if self.heads:
            return super().forward(x, mask, rotation, memory, cache)
        with torch.no_grad():  # for the cache and for hooks: there is nothing to learn
            super().forward(x, mask, rotation, memory, cache)
        return self.output(x[..., :0])  # (B, T, D)

    def compute_z(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Queries (B, H, T, K), keys and values (B, G, S, K) -> z (B, H, T, K)."""
        if not self.uniform_groups:
            k = torch.stack([k[:, kv] for kv in self.kv_index], dim=1)  # (B, H, S, K)
            v = torch.stack([v[:, kv] for kv in self.kv_index], dim=1)  # (B, H, S, K)
        return super().compute_z(q, k, v, mask_of_heads(self, mask))


def head_numbers(layer: Attention) -> list[int]:
    """Return the numbers of an attention's query heads: 0 to H - 1, unless heads were removed."""
    return layer.head_numbers if isinstance(layer, PrunedAttention) else list(range(layer.heads))


def kv_index(layer: Attention) -> list[int]:
    """Return the index of the key head that serves each query head of an attention, (H)."""
    if isinstance(layer, PrunedAttention):
        return layer.kv_index
    return [head * layer.kv_heads // layer.heads for head in range(layer.heads)]


def mask_of_heads(layer: Attention, mask: Mask) -> Mask:
    """Return the mask with the bias of those heads alone that the attention has."""
    if mask.bias is None or mask.bias.shape[1] == layer.heads:
        return mask
    return replace(mask, bias=mask.bias[:, head_numbers(layer)])  # (B or 1, H, T, S)


def place_pruned_attentions(model: nn.Module, config: ModelConfig) -> None:
    """Put a `PrunedAttention` in the place of each attention of which `config` removes a head."""
    for stack in model.modules():
        if not isinstance(stack, Stack):
            continue
        name = "dec" if stack.causal else "enc"
        for layer, block in enumerate(stack.blocks):
            assert isinstance(block, Block)
            own = f"{name}.{layer}.self"
            other = f"{name}.{layer}.cross"
            if len(config.kept_heads(own)) < config.heads:
                block.attention = PrunedAttention(config, own)
            if block.cross is not None and len(config.kept_heads(other)) < config.heads:
                block.cross = PrunedAttention(config, other)
