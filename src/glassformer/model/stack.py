"""A stack of blocks, and the embedding below it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import GlassError
from glassformer.model.block import Block, View
from glassformer.model.cache import Cache
from glassformer.model.masks import Mask, self_mask, token_positions
from glassformer.model.normalization import make_norm
from glassformer.model.positions import RotaryPositions, added_positions, score_positions


class Embedding(nn.Module):
    """Token ids to vectors, with places added where the setting adds them."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, config.width), added_positions(config)
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.scale = math.sqrt(config.width) if config.embedding_scale else 1.0
        self.dropout = nn.Dropout(config.dropout_embedding)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Ids (B, T) and their places (B or 1, T) -> vectors (B, T, D)."""
        x = self.tokens(tokens) * self.scale  # (B, T, D)
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)  # (B, T, D)
        return self.dropout(self.norm(x))  # (B, T, D)


class Stack(nn.Module):
    """L blocks and what they share: places, masks, and the last norm, unless each block ends with one.

    A decoder's is `causal`, an encoder's looks both ways. `cross`: with cross-attention; `layers`: L, not `config`'s.
    """

    def __init__(self, config: ModelConfig, causal: bool, cross: bool = False, layers: int | None = None) -> None:
        super().__init__()
        self.causal, self.window, self.context = causal, config.window, config.context
        self.rotary = RotaryPositions(config.K, config.rotary_base) if config.positions == "rotary" else None
        self.score_positions = score_positions(config, causal)
        sites = [f"{'dec' if causal else 'enc'}.{index}" for index in range(layers or config.layers)]
        self.blocks = nn.ModuleList(Block(config, site, cross) for site in sites)
        self.norm = make_norm(config) if config.norm_order != "post" else nn.Identity()

    def forward(
        self,
        tokens: Tensor,
        embedding: Embedding,
        real: Tensor | None = None,
        memory: Tensor | None = None,
        real_memory: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Ids (B, T) -> vectors (B, T, D).

        Args:
            real: (B, T) bool, False at padding, on either side; None: all real. Places count real tokens only.
            memory, real_memory: (B, S, D) for cross-attention, and (B, S) bool.
            cache: holds the tokens before these; it is filled with these.
        """
        if (T := tokens.shape[1]) > self.context:
            raise GlassError(f"{T} tokens were given to a model with a context of {self.context}", "Cut the text.")
        if cache is not None:
            positions, key_positions, real_keys = cache.extend(T, real)  # (B or 1, T), (B or 1, S), (B, S)
        else:
            positions = torch.arange(T, device=tokens.device)[None] if real is None else token_positions(real)
            key_positions, real_keys = positions, real  # (B or 1, T), (B, T)
        mask = self_mask(positions, key_positions, real_keys, self.causal, self.window)  # (B, 1, T, S)
        if self.score_positions is not None:
            mask = mask.with_bias(self.score_positions(positions, key_positions))  # (B, H, T, S)
        seen = Mask() if real_memory is None else Mask.of(real_memory[:, None, None, :])  # (B, 1, 1, S)
        view = View(mask, None if self.rotary is None else self.rotary(positions), memory, seen)
        x = embedding(tokens, positions)  # (B, T, D)
        for index, block in enumerate(self.blocks):
            x = block(x, view, cache.layers[index] if cache is not None else None)  # (B, T, D)
        return self.norm(x)  # (B, T, D)
