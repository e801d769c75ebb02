"""The three families: they differ in mask, memory and head only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.model.cache import Cache
from glassformer.model.feedforward import activate
from glassformer.model.normalization import make_norm
from glassformer.model.stack import Embedding, Stack


class Head(nn.Module):
    """Vectors to logits: by its own matrix, or by the embedding's when tied (Press and Wolf 2017)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.width, config.width) if config.head_transform else None  # Devlin et al. 2019
        self.activation, self.norm = config.activation, make_norm(config) if config.head_transform else nn.Identity()
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocab_size, config.width))  # (V, D)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.head_bias else None  # (V)

    def forward(self, x: Tensor, embedding: Embedding) -> Tensor:
        """(B, T, D) -> (B, T, V)."""
        if self.transform is not None:  # its norm keeps its precision under autocast
            x = activate(self.transform(x), self.activation).to(x.dtype)  # (B, T, D)
        matrix = embedding.tokens.weight if self.weight is None else self.weight  # (V, D)
        return F.linear(self.norm(x), matrix, self.bias)  # (B, T, V)


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


class Classifier(nn.Module):
    """An encoder that names the class of the whole text, from the mean of its vectors or from the first one."""

    def __init__(self, config: ModelConfig, vocab_size: int, classes: int) -> None:
        super().__init__()
        self.config, self.vocab_size, self.embedding = config, vocab_size, Embedding(config, vocab_size)
        self.stack = Stack(config, causal=False)
        self.dropout = nn.Dropout(config.dropout_residual)
        self.head = nn.Linear(config.width, classes)

    def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> class scores (B, C)."""
        x = self.stack(tokens, self.embedding, real)  # (B, T, D)
        real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real  # (B, T)
        if self.config.pooling == "first":
            pooled = x[torch.arange(len(x)), real.long().argmax(dim=1)]  # (B, D)
        else:
            pooled = (x * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1)  # (B, D)
        return self.head(self.dropout(pooled))  # (B, C)


class EncoderDecoder(nn.Module):
    """A source is read whole, a target is written token by token (Vaswani et al. 2017)."""

    def __init__(self, config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> None:
        super().__init__()
        self.config, self.vocab_size, self.embedding = config, vocab_size, Embedding(config, vocab_size)
        self.source_embedding = None if config.shared_embedding else Embedding(config, source_vocab_size or vocab_size)
        self.encoder = Stack(config, causal=False, layers=config.encoder_layers)
        self.decoder = Stack(config, causal=True, cross=True)
        self.head = Head(config, vocab_size)

    def encode(self, source: Tensor, real_source: Tensor | None = None) -> Tensor:
        """Source ids (B, S) -> the memory (B, S, D) that the decoder looks at."""
        return self.encoder(source, self.source_embedding or self.embedding, real_source)  # (B, S, D)

    def decode(self, target: Tensor, memory: Tensor, real: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Target ids (B, T), the memory and which of its places are real, (B, S) -> logits (B, T, V).

        A target's padding stands last, where no real token of it looks, so it needs no mask.
        """
        return self.head(self.decoder(target, self.embedding, None, memory, real, cache), self.embedding)  # (B, T, V)

    def forward(self, source: Tensor, target: Tensor, real_source: Tensor | None = None) -> Tensor:
        """Source ids (B, S) and target ids (B, T) -> logits (B, T, V) of the target's next tokens."""
        return self.decode(target, self.encode(source, real_source), real_source)  # (B, T, V)


Model = Decoder | Encoder | Classifier | EncoderDecoder
