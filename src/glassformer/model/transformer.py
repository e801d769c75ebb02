"""The transformer, from token ids to logits: feed-forward, block, stack, and the three families made of them.

A decoder's forward pass is `Decoder.forward` -> `Stack.forward` -> `PreNormBlock.forward` -> `Attention.forward` (in
`glassformer.model.attention`) and `FeedForward.forward` -> `Head.forward`. The letters of the shapes are those of
`glassformer.base.shapes`.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.base.config import GATED, Activation, ModelConfig
from glassformer.base.errors import GlassError
from glassformer.model.attention import EVERY_KEY, Attention, Mask, self_attention_mask
from glassformer.model.cache import Cache, LayerCache
from glassformer.model.positions import RotaryPositions, Rotation, added_positions, score_positions, token_positions


def make_norm(config: ModelConfig) -> nn.Module:
    """Return a norm over the width: LayerNorm (Ba et al. 2016), RMSNorm (Zhang and Sennrich 2019), or the identity."""
    match config.norm:
        case "layernorm":
            return nn.LayerNorm(config.width, eps=config.eps, bias=config.norm_bias)
        case "rmsnorm":
            return nn.RMSNorm(config.width, eps=config.eps)
        case "none":
            return nn.Identity()


def activate(x: Tensor, name: Activation) -> Tensor:
    """Return the activation of x, any shape; a gated kind names the activation of its gate."""
    match name:
        case "relu":
            return F.relu(x)
        case "relu2":  # So et al. 2021
            return F.relu(x).square()
        case "gelu" | "geglu":  # Hendrycks and Gimpel 2016
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "swiglu":
            return F.silu(x)


class FeedForward(nn.Module):
    """D -> F -> D, for each token by itself (Vaswani et al. 2017, section 3.3); gated: Shazeer 2020."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.up = nn.Linear(config.width, config.F, config.feedforward_bias)
        self.gate = nn.Linear(config.width, config.F, config.feedforward_bias) if config.activation in GATED else None
        self.down = nn.Linear(config.F, config.width, config.feedforward_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        hidden = self.up(x)  # (B, T, F)
        if self.gate is None:
            hidden = activate(hidden, self.activation)  # (B, T, F)
        else:
            hidden = activate(self.gate(x), self.activation) * hidden  # (B, T, F)
        return self.down(hidden)  # (B, T, D)


class Block(nn.Module):
    """The parts of a block: self-attention, cross-attention if there is a memory, and the feed-forward layer.

    Each part adds to the residual stream x. Where the norms stand is what the three subclasses differ in; their forward
    pass takes (B, T, D) to (B, T, D).

    Args:
        config: the shape of the model.
        cross: the block attends to a memory too.
    """

    norm_order: Literal["pre", "post", "output"]

    def __init__(self, config: ModelConfig, cross: bool = False) -> None:
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = Attention(config)
        self.cross_norm = make_norm(config) if cross else None
        self.cross = Attention(config) if cross else None
        self.feedforward_norm = make_norm(config)
        self.feedforward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout_residual)


class PreNormBlock(Block):
    """Each part reads the normalised stream: x + part(norm(x)). Xiong et al. 2020; GPT-2, Llama."""

    norm_order = "pre"

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask = EVERY_KEY,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); `memory` (B, S, D) is what cross-attention reads."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, rotation, cache=cache))  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            x = x + self.dropout(self.cross(self.cross_norm(x), memory_mask, memory=memory, cache=cache))  # (B, T, D)
        return x + self.dropout(self.feedforward(self.feedforward_norm(x)))  # (B, T, D)


class PostNormBlock(Block):
    """The sum is normalised: norm(x + part(x)). Vaswani et al. 2017; BERT, BART."""

    norm_order = "post"

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask = EVERY_KEY,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); `memory` (B, S, D) is what cross-attention reads."""
        x = self.attention_norm(x + self.dropout(self.attention(x, mask, rotation, cache=cache)))  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            x = self.cross_norm(x + self.dropout(self.cross(x, memory_mask, memory=memory, cache=cache)))  # (B, T, D)
        return self.feedforward_norm(x + self.dropout(self.feedforward(x)))  # (B, T, D)


class OutputNormBlock(Block):
    """Normalise the output of each part: x + norm(part(x)). Team OLMo 2025, section 3 (OLMo 2)."""

    norm_order = "output"

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask = EVERY_KEY,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); `memory` (B, S, D) is what cross-attention reads."""
        dtype = x.dtype  # of the stream, in which the norms compute under autocast too
        given = self.attention(x, mask, rotation, cache=cache)  # (B, T, D)
        x = x + self.dropout(self.attention_norm(given.to(dtype)))  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            given = self.cross(x, memory_mask, memory=memory, cache=cache)  # (B, T, D)
            x = x + self.dropout(self.cross_norm(given.to(dtype)))  # (B, T, D)
        given = self.feedforward(x)  # (B, T, D)
        return x + self.dropout(self.feedforward_norm(given.to(dtype)))  # (B, T, D)


BLOCKS: dict[str, type[Block]] = {"pre": PreNormBlock, "post": PostNormBlock, "output": OutputNormBlock}
"""The block of each `model.norm_order`."""


class Embedding(nn.Module):
    """Token ids to vectors, with position vectors added where the setting adds them."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.width)
        self.positions = added_positions(config)
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.scale = math.sqrt(config.width) if config.embedding_scale else 1.0
        self.dropout = nn.Dropout(config.dropout_embedding)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Ids (B, T) and their positions (B or 1, T) -> vectors (B, T, D)."""
        x = self.tokens(tokens) * self.scale  # (B, T, D)
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)  # (B, T, D)
        return self.dropout(self.norm(x))  # (B, T, D)


class Stack(nn.Module):
    """L blocks, what they share (positions and masks), and the last norm, unless each block ends with one.

    Args:
        config: the shape of the model.
        causal: a token attends to itself and to those before it (a decoder), or to both sides (an encoder).
        cross: the blocks attend to a memory too.
        layers: L; None: the setting's.
    """

    def __init__(self, config: ModelConfig, causal: bool, cross: bool = False, layers: int | None = None) -> None:
        super().__init__()
        self.causal = causal
        self.window = config.window
        self.context = config.context
        self.rotary = RotaryPositions(config.K, config.rotary_base) if config.positions == "rotary" else None
        self.score_positions = score_positions(config, causal)
        block = BLOCKS[config.norm_order]
        self.blocks = nn.ModuleList(block(config, cross) for _ in range(layers or config.layers))
        self.norm = make_norm(config) if config.norm_order != "post" else nn.Identity()

    def forward(
        self,
        tokens: Tensor,
        embedding: Embedding,
        attention_mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Ids (B, T) -> vectors (B, T, D).

        Args:
            embedding: of these ids.
            attention_mask: (B, T) bool, False at padding, on either side; None: no padding. Positions count the other
                tokens only.
            memory: (B, S, D) what cross-attention reads.
            memory_attention_mask: (B, S) bool, False at padding of the memory; None: no padding.
            cache: holds the tokens before these; it is filled with these.

        Raises:
            GlassError: there are more tokens than the context.
        """
        T = tokens.shape[1]
        if self.context < T:
            raise GlassError(f"{T} tokens were given to a model with a context of {self.context}", "Cut the text.")
        if cache is not None:
            positions, key_positions, key_mask = cache.extend(T, attention_mask)  # (B or 1, T), (B or 1, S), (B, S)
        elif attention_mask is not None:
            positions = token_positions(attention_mask)  # (B, T)
            key_positions = positions  # (B, T): S = T
            key_mask = attention_mask  # (B, T)
        else:
            positions = torch.arange(T, device=tokens.device)[None]  # (1, T)
            key_positions = positions  # (1, T): S = T
            key_mask = None

        mask = self_attention_mask(positions, key_positions, key_mask, self.causal, self.window)  # Mask
        if self.score_positions is not None:
            mask = mask.with_bias(self.score_positions(positions, key_positions))  # Mask with a bias (B, H, T, S)
        memory_mask = EVERY_KEY
        if memory_attention_mask is not None:
            memory_mask = Mask.of(memory_attention_mask[:, None, None, :])  # Mask (B, 1, 1, S)
        rotation = None if self.rotary is None else self.rotary(positions)  # (B or 1, 1, T, K)

        x = embedding(tokens, positions)  # (B, T, D)
        for layer, block in enumerate(self.blocks):
            layer_cache = None if cache is None else cache.layers[layer]
            x = block(x, mask, rotation, memory, memory_mask, layer_cache)  # (B, T, D)
        return self.norm(x)  # (B, T, D)


class Head(nn.Module):
    """Vectors to logits, by its own matrix, or by the embedding's when tied (Press and Wolf 2017)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.width, config.width) if config.head_transform else None  # Devlin et al. 2019
        self.activation = config.activation
        self.norm = make_norm(config) if config.head_transform else nn.Identity()
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocab_size, config.width))  # (V, D)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.head_bias else None  # (V)

    def forward(self, x: Tensor, embedding: Embedding) -> Tensor:
        """(B, T, D) -> (B, T, V)."""
        return F.linear(self.features(x), self.matrix(embedding), self.bias)  # (B, T, V)

    def features(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D), what the output matrix multiplies."""
        if self.transform is not None:  # its norm computes in the precision of x under autocast too
            x = activate(self.transform(x), self.activation).to(x.dtype)  # (..., D)
        return self.norm(x)  # (..., D)

    def matrix(self, embedding: Embedding) -> Tensor:
        """Return the output matrix (V, D)."""
        return embedding.tokens.weight if self.weight is None else self.weight  # (V, D)


class Decoder(nn.Module):
    """The language model: a token attends to the tokens up to itself, and predicts the next (Radford et al. 2018).

    Args:
        config: the shape of the model.
        vocab_size: V.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.stack = Stack(config, causal=True)
        self.head = Head(config, vocab_size)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V) of the token after each.

        Args:
            attention_mask: (B, T) bool, False at padding, on either side; None: no padding.
            cache: holds the tokens before these; it is filled with these.

        Raises:
            GlassError: there are more tokens than the context, or than the cache has room for.
        """
        x = self.hidden_states(tokens, attention_mask, cache)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)

    def hidden_states(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Ids (B, T) -> (B, T, D), what the head reads; arguments as of `forward`."""
        return self.stack(tokens, self.embedding, attention_mask, cache=cache)  # (B, T, D)


class Encoder(nn.Module):
    """A token attends to the whole text, and its logits are of the token itself: masked training (Devlin et al. 2019).

    Args:
        config: the shape of the model.
        vocab_size: V.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.stack = Stack(config, causal=False)
        self.head = Head(config, vocab_size)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V); `attention_mask` (B, T) is False at padding.

        Raises:
            GlassError: there are more tokens than the context.
        """
        x = self.hidden_states(tokens, attention_mask)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)

    def hidden_states(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> (B, T, D), what the head reads; arguments as of `forward`."""
        return self.stack(tokens, self.embedding, attention_mask)  # (B, T, D)


class Classifier(nn.Module):
    """An encoder that names the class of the whole text, from the mean of its vectors or from the first one.

    Args:
        config: the shape of the model.
        vocab_size: V.
        classes: C.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, classes: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.stack = Stack(config, causal=False)
        self.dropout = nn.Dropout(config.dropout_residual)
        self.head = nn.Linear(config.width, classes)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> class scores (B, C); `attention_mask` (B, T) is False at padding.

        Raises:
            GlassError: there are more tokens than the context.
        """
        x = self.stack(tokens, self.embedding, attention_mask)  # (B, T, D)
        if attention_mask is None:
            attention_mask = torch.ones_like(tokens, dtype=torch.bool)  # (B, T)
        if self.config.pooling == "first":
            first = attention_mask.long().argmax(dim=1)  # (B)
            pooled = x[torch.arange(len(x)), first]  # (B, D)
        else:
            counts = attention_mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B, 1)
            pooled = (x * attention_mask[..., None]).sum(dim=1) / counts  # (B, D)
        return self.head(self.dropout(pooled))  # (B, C)


class EncoderDecoder(nn.Module):
    """An encoder reads the source, and a decoder that attends to it writes the target (Vaswani et al. 2017).

    Args:
        config: the shape of the model.
        vocab_size: V of the target.
        source_vocab_size: of the source, if it has an embedding of its own; None: V.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.source_embedding = None if config.shared_embedding else Embedding(config, source_vocab_size or vocab_size)
        self.encoder = Stack(config, causal=False, layers=config.encoder_layers)
        self.decoder = Stack(config, causal=True, cross=True)
        self.head = Head(config, vocab_size)

    def forward(self, source: Tensor, target: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Source ids (B, S) and target ids (B, T) -> logits (B, T, V) of the token after each of the target.

        Args:
            attention_mask: (B, S) bool, False at padding of the source; None: no padding. Padding of the target stands
                last, where no other token attends to it, so it needs no mask.

        Raises:
            GlassError: there are more tokens on either side than the context.
        """
        x = self.hidden_states(source, target, attention_mask)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)

    def hidden_states(self, source: Tensor, target: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Source ids (B, S) and target ids (B, T) -> (B, T, D), what the head reads; arguments as of `forward`."""
        memory = self.encode(source, attention_mask)  # (B, S, D)
        return self.decoder(target, self.embedding, None, memory, attention_mask)  # (B, T, D)

    def encode(self, source: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Source ids (B, S) -> the memory (B, S, D) that the decoder attends to."""
        return self.encoder(source, self.source_embedding or self.embedding, attention_mask)  # (B, S, D)

    def decode(
        self, target: Tensor, memory: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Target ids (B, T) and the memory (B, S, D) -> logits (B, T, V).

        Args:
            attention_mask: (B, S) bool, False at padding of the memory; None: no padding.
            cache: holds the target's tokens before these, and the memory's keys and values once they were computed.
        """
        x = self.decoder(target, self.embedding, None, memory, attention_mask, cache)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)


Model = Decoder | Encoder | Classifier | EncoderDecoder
