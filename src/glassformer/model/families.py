"""The three families: they differ in mask, memory and head only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.errors import GlassError
from glassformer.model.cache import Cache
from glassformer.model.initialization import initialize
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
        self.config, self.vocab_size = config, vocab_size
        self.embedding = Embedding(config, vocab_size)
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
        self.config, self.vocab_size = config, vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.stack = Stack(config, causal=False)
        self.head = Head(config, vocab_size)

    def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V)."""
        return self.head(self.stack(tokens, self.embedding, real), self.embedding)  # (B, T, V)


class EncoderDecoder(nn.Module):
    """A source is read whole, a target is written token by token (Vaswani et al. 2017). One shared vocabulary."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.encoder = Stack(config, causal=False)
        self.decoder = Stack(config, causal=True, cross=True)
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


def build_model(config: ModelConfig, vocab_size: int | None = None, seed: int = 0) -> Model:
    """A freshly initialised model; the weights are a function of config, vocab_size and seed alone.

    Args:
        config: the shape.
        vocab_size: V; not needed when `config.vocab_size` says it.
        seed: of the initial weights.

    Raises:
        GlassError: the two sizes differ, or neither is given.
    """
    size = vocab_size or config.vocab_size
    if size is None:
        raise GlassError("the model's vocabulary size is not known", "Set model.vocab_size, or give a tokenizer.")
    if config.vocab_size is not None and config.vocab_size != size:
        raise GlassError(
            f"model.vocab_size is {config.vocab_size}, but the tokenizer has {size} tokens",
            f"Set model.vocab_size = {size}, or leave it unset.",
        )
    kinds: dict[str, type[Model]] = {"decoder": Decoder, "encoder": Encoder, "encoder-decoder": EncoderDecoder}
    model = kinds[config.family](config, size)
    initialize(model, config, seed)
    return model
