"""The three families: they differ in mask, memory and head only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.model.cache import Cache
from glassformer.model.stack import Embedding, Stack


class Head(nn.Module):
    """Vectors to logits: by its own matrix, or by the embedding's when tied (Press and Wolf 2017)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocab_size, config.width))  # (V, D)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.head_bias else None  # (V)

    def forward(self, x: Tensor, embedding: Embedding) -> Tensor:
        """(B, T, D) -> (B, T, V)."""
        matrix = embedding.tokens.weight if self.weight is None else self.weight  # (V, D)
        return F.linear(x, matrix, self.bias)  # (B, T, V)


class Decoder(nn.Module):
    """The language model: each token sees those before it, and predicts the next."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size, self.embedding = config, vocab_size, Embedding(config, vocab_size)
        self.stack = Stack(config, causal=True)
        self.head = Head(config, vocab_size)

    def forward(self, tokens: Tensor, real: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V) of the token after each.

        `real` (B, T) marks what is not padding, on either side; `cache` holds the tokens before these.
        """
        return self.head(self.stack(tokens, self.embedding, real, cache=cache), self.embedding)  # (B, T, V)


class Encoder(nn.Module):
    """Each token sees the whole text; the logits are of the token itself, for masked training (Devlin et al. 2019)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size, self.embedding = config, vocab_size, Embedding(config, vocab_size)
        self.stack = Stack(config, causal=False)
        self.head = Head(config, vocab_size)

    def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V)."""
        return self.head(self.stack(tokens, self.embedding, real), self.embedding)  # (B, T, V)


class EncoderDecoder(nn.Module):
    """A source is read whole, a target is written token by token (Vaswani et al. 2017). One shared vocabulary."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size, self.embedding = config, vocab_size, Embedding(config, vocab_size)
        self.encoder, self.decoder = Stack(config, causal=False), Stack(config, causal=True, cross=True)
        self.head = Head(config, vocab_size)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        real_source: Tensor | None = None,
        real_target: Tensor | None = None,
    ) -> Tensor:
        """Source ids (B, S) and target ids (B, T) -> logits (B, T, V) of the target's next tokens."""
        memory = self.encoder(source, self.embedding, real_source)  # (B, S, D)
        x = self.decoder(target, self.embedding, real_target, memory, real_source)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)


Model = Decoder | Encoder | EncoderDecoder
