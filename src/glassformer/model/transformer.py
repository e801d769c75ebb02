"""The transformer, from token ids to logits: feed-forward layer, block, stack, and the three model families.

With the default norm order, a decoder's forward pass is `Decoder.forward` -> `Stack.forward` -> `PreNormBlock.forward`
-> `Attention.forward` (in `glassformer.model.attention`) and `FeedForward.forward` -> `Head.forward`.
`glassformer.base.shapes` defines the letters of the shapes.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.base.config import GATED, Activation, ModelConfig
from glassformer.base.errors import GlassError
from glassformer.model.attention import EVERY_KEY, Attention, Mask, self_attention_mask
from glassformer.model.cache import Cache, LayerCache
from glassformer.model.dropout import Dropout
from glassformer.model.positions import RotaryPositions, Rotation, added_positions, score_positions, token_positions


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the norm of `config`: LayerNorm (Ba et al. 2016), RMSNorm (Zhang and Sennrich 2019), or the identity."""
    match config.norm:
        case "layernorm":
            return nn.LayerNorm(config.width, eps=config.eps, bias=config.norm_bias)
        case "rmsnorm":
            return nn.RMSNorm(config.width, eps=config.eps)
        case "none":
            return nn.Identity()


def activate(x: Tensor, name: Activation) -> Tensor:
    """Apply the named activation to x (any shape); in a gated feed-forward layer, x is the projection for the gate."""
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
    """Position-wise feed-forward layer D -> F -> D (Vaswani et al. 2017, section 3.3), or gated (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.up = nn.Linear(config.width, config.F, config.feedforward_bias)
        self.gate = nn.Linear(config.width, config.F, config.feedforward_bias) if config.activation in GATED else None
        self.down = nn.Linear(config.F, config.width, config.feedforward_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) -> (B, T, D)."""
        hidden = self.up(x)  # (B, T, F)
        if self.gate is None:
            hidden = activate(hidden, self.activation)  # (B, T, F)
        else:
            hidden = activate(self.gate(x), self.activation) * hidden  # (B, T, F)
        return self.down(hidden)  # (B, T, D)


class Block(nn.Module):
    """Base class of transformer blocks: self-attention, optional cross-attention to a memory, feed-forward layer.

    Each sublayer adds its output to the residual stream x. The three subclasses differ only in where they apply the
    norms; their forward pass maps (B, T, D) -> (B, T, D).

    Args:
        config: model settings.
        cross: whether the block has cross-attention to a memory.
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
        self.dropout = Dropout(config.dropout_residual)


class PreNormBlock(Block):
    """Pre-norm block, with a norm before each sublayer: x + sublayer(norm(x)). Xiong et al. 2020; GPT-2, Llama."""

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
        """Map (B, T, D) -> (B, T, D); cross-attention attends to `memory` (B, S, D)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, rotation, cache=cache))  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            x = x + self.dropout(self.cross(self.cross_norm(x), memory_mask, memory=memory, cache=cache))  # (B, T, D)
        return x + self.dropout(self.feedforward(self.feedforward_norm(x)))  # (B, T, D)


class PostNormBlock(Block):
    """Post-norm block, with a norm after each addition: norm(x + sublayer(x)). Vaswani et al. 2017; BERT, BART."""

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
        """Map (B, T, D) -> (B, T, D); cross-attention attends to `memory` (B, S, D)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, mask, rotation, cache=cache)))  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            x = self.cross_norm(x + self.dropout(self.cross(x, memory_mask, memory=memory, cache=cache)))  # (B, T, D)
        return self.feedforward_norm(x + self.dropout(self.feedforward(x)))  # (B, T, D)


class OutputNormBlock(Block):
    """Output-norm block, with a norm after each sublayer: x + norm(sublayer(x)). Team OLMo 2025, section 3 (OLMo 2)."""

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
        """Map (B, T, D) -> (B, T, D); cross-attention attends to `memory` (B, S, D)."""
        dtype = x.dtype  # of the residual stream: the norms compute in it under autocast too
        output = self.attention(x, mask, rotation, cache=cache)  # (B, T, D)
        x = x + self.dropout(self.attention_norm(output.to(dtype)))  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            output = self.cross(x, memory_mask, memory=memory, cache=cache)  # (B, T, D)
            x = x + self.dropout(self.cross_norm(output.to(dtype)))  # (B, T, D)
        output = self.feedforward(x)  # (B, T, D)
        return x + self.dropout(self.feedforward_norm(output.to(dtype)))  # (B, T, D)


BLOCKS: dict[str, type[Block]] = {"pre": PreNormBlock, "post": PostNormBlock, "output": OutputNormBlock}
"""`model.norm_order` -> block class."""


class Embedding(nn.Module):
    """Token embedding, with position vectors if `config.positions` is "learned" or "sinusoidal".

    Settings can add a scale, a norm and dropout.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.width)
        self.positions = added_positions(config)
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.scale = math.sqrt(config.width) if config.embedding_scale else 1.0
        self.dropout = Dropout(config.dropout_embedding)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the vectors (B, T, D) of ids (B, T) at positions (B or 1, T)."""
        x = self.tokens(tokens) * self.scale  # (B, T, D)
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)  # (B, T, D)
        return self.dropout(self.norm(x))  # (B, T, D)


class Stack(nn.Module):
    """Stack of L blocks, with their shared positions and masks, and a final norm unless each block ends with one.

    Args:
        config: model settings.
        causal: whether a token attends only to itself and earlier tokens (decoder), or to both sides (encoder).
        cross: whether the blocks have cross-attention to a memory.
        layers: L; None: from `config`.
    """

    def __init__(self, config: ModelConfig, causal: bool, cross: bool = False, layers: int | None = None) -> None:
        super().__init__()
        self.causal = causal
        self.hook_causal = nn.Identity()  # a hook may replace the bool, to lift the mask
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
        """Map token ids (B, T) to hidden states (B, T, D).

        Args:
            embedding: module that embeds the ids.
            attention_mask: (B, T) bool, False at padding, on either side; None: no padding. Padding has no effect
                on the positions of tokens.
            memory: (B, S, D) input of cross-attention; None in a stack without cross-attention.
            memory_attention_mask: (B, S) bool, False at padding of the memory; None: no padding.
            cache: cache of the earlier tokens; the new tokens are added to it. None: no cache.

        Raises:
            GlassError: `tokens` is longer than the context, or the cache has no room for the new tokens.
        """
        T = tokens.shape[1]
        if self.context < T:
            raise GlassError(f"{T} tokens were given to a model with a context of {self.context}", "Shorten the text.")
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

        mask = self_attention_mask(positions, key_positions, key_mask, self.hook_causal(self.causal), self.window)
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
    """Output head, from hidden states to logits. A tied head uses the embedding's matrix (Press and Wolf 2017)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.width, config.width) if config.head_transform else None  # Devlin et al. 2019
        self.activation = config.activation
        self.norm = make_norm(config) if config.head_transform else nn.Identity()
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocab_size, config.width))  # (V, D)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.head_bias else None  # (V)

    def forward(self, x: Tensor, embedding: Embedding) -> Tensor:
        """Return logits (B, T, V) of hidden states (B, T, D)."""
        return F.linear(self.features(x), self.matrix(embedding), self.bias)  # (B, T, V)

    def features(self, x: Tensor) -> Tensor:
        """Apply the transform and norm, if any: (..., D) -> (..., D), the input of the output matrix."""
        if self.transform is not None:  # the norm computes in the precision of x under autocast too
            x = activate(self.transform(x), self.activation).to(x.dtype)  # (..., D)
        return self.norm(x)  # (..., D)

    def matrix(self, embedding: Embedding) -> Tensor:
        """Return the output matrix (V, D)."""
        return embedding.tokens.weight if self.weight is None else self.weight  # (V, D)


class ModelInput(NamedTuple):
    """Input of a model of any family, which `run` takes.

    Attributes:
        tokens: ids (B, T); in an encoder-decoder those of the source, (B, S).
        target: ids (B, T) of the target of an encoder-decoder; None for other families.
        attention_mask: bool, of the shape of `tokens`, False at padding; None: no padding.
    """

    tokens: Tensor
    target: Tensor | None = None
    attention_mask: Tensor | None = None


class Decoder(nn.Module):
    """Decoder language model: each token attends to itself and earlier tokens, and predicts the next token.

    Radford et al. 2018.

    Args:
        config: model settings.
        vocab_size: V.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.stack = Stack(config, causal=True)
        self.head = Head(config, vocab_size)

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks by name, in order of execution."""
        return {"dec": self.stack}

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The embedding below each stack, by the name of the stack."""
        return {"dec": self.embedding}

    def run(self, inputs: ModelInput) -> Tensor:
        """Return the logits (B, T, V) of an input."""
        return self(inputs.tokens, inputs.attention_mask)  # (B, T, V)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the next-token logits (B, T, V) for ids (B, T).

        Args:
            attention_mask: (B, T) bool, False at padding, on either side; None: no padding.
            cache: cache of the earlier tokens; the new tokens are added to it. None: no cache.

        Raises:
            GlassError: `tokens` is longer than the context, or the cache has no room for the new tokens.
        """
        x = self.hidden_states(tokens, attention_mask, cache)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)

    def hidden_states(self, tokens: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the hidden states (B, T, D) for ids (B, T), the input of the head; arguments as in `forward`."""
        return self.stack(tokens, self.embedding, attention_mask, cache=cache)  # (B, T, D)


class Encoder(nn.Module):
    """Masked language model: each token attends to both sides, and its logits predict the token itself.

    Devlin et al. 2019.

    Args:
        config: model settings.
        vocab_size: V.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.stack = Stack(config, causal=False)
        self.head = Head(config, vocab_size)

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks by name, in order of execution."""
        return {"enc": self.stack}

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The embedding below each stack, by the name of the stack."""
        return {"enc": self.embedding}

    def run(self, inputs: ModelInput) -> Tensor:
        """Return the logits (B, T, V) of an input."""
        return self(inputs.tokens, inputs.attention_mask)  # (B, T, V)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V) for ids (B, T).

        Args:
            attention_mask: (B, T) bool, False at padding, on either side; None: no padding.

        Raises:
            GlassError: `tokens` is longer than the context.
        """
        x = self.hidden_states(tokens, attention_mask)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)

    def hidden_states(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, D) for ids (B, T), the input of the head; arguments as in `forward`."""
        return self.stack(tokens, self.embedding, attention_mask)  # (B, T, D)


class Classifier(nn.Module):
    """Text classifier: an encoder, mean or first-token pooling, and a linear layer.

    Args:
        config: model settings.
        vocab_size: V.
        classes: C.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, classes: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = Embedding(config, vocab_size)
        self.stack = Stack(config, causal=False)
        self.dropout = Dropout(config.dropout_residual)
        self.head = nn.Linear(config.width, classes)

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks by name, in order of execution."""
        return {"enc": self.stack}

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The embedding below each stack, by the name of the stack."""
        return {"enc": self.embedding}

    def run(self, inputs: ModelInput) -> Tensor:
        """Return the logits (B, C) of an input."""
        return self(inputs.tokens, inputs.attention_mask)  # (B, C)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return class logits (B, C) for ids (B, T).

        Args:
            attention_mask: (B, T) bool, False at padding, on either side; None: no padding.

        Raises:
            GlassError: `tokens` is longer than the context.
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
    """Encoder-decoder: the encoder reads the source; the decoder attends to the encoder's output and predicts the
    target.

    Vaswani et al. 2017.

    Args:
        config: model settings.
        vocab_size: V, of the target.
        source_vocab_size: vocabulary size of the source, if it has a separate embedding; None: V.
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

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks by name, in order of execution."""
        return {"enc": self.encoder, "dec": self.decoder}

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """The embedding below each stack, by the name of the stack."""
        return {"enc": self.source_embedding or self.embedding, "dec": self.embedding}

    def run(self, inputs: ModelInput) -> Tensor:
        """Return the logits (B, T, V) of an input."""
        return self(inputs.tokens, inputs.target, inputs.attention_mask)  # (B, T, V)

    def forward(self, source: Tensor, target: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the next-token logits (B, T, V) for source ids (B, S) and target ids (B, T).

        Args:
            attention_mask: (B, S) bool, False at padding of the source; None: no padding. The target needs no mask: it
                is padded on the right, and tokens do not attend to later positions.

        Raises:
            GlassError: source or target has more tokens than the context.
        """
        x = self.hidden_states(source, target, attention_mask)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)

    def hidden_states(self, source: Tensor, target: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the decoder's hidden states (B, T, D), the input of the head; arguments as in `forward`."""
        memory = self.encode(source, attention_mask)  # (B, S, D)
        return self.decoder(target, self.embedding, None, memory, attention_mask)  # (B, T, D)

    def encode(self, source: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the memory (B, S, D) of source ids (B, S), which the decoder attends to.

        Args:
            attention_mask: (B, S) bool, False at padding; None: no padding.

        Raises:
            GlassError: `source` is longer than the context.
        """
        return self.encoder(source, self.source_embedding or self.embedding, attention_mask)  # (B, S, D)

    def decode(
        self, target: Tensor, memory: Tensor, attention_mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the next-token logits (B, T, V) for target ids (B, T) and the memory (B, S, D).

        Args:
            attention_mask: (B, S) bool, False at padding of the memory; None: no padding.
            cache: cache of the earlier target tokens, and of the memory's keys and values after the first call; the new
                tokens are added to it. None: no cache.

        Raises:
            GlassError: `target` is longer than the context, or the cache has no room for the new tokens.
        """
        x = self.decoder(target, self.embedding, None, memory, attention_mask, cache)  # (B, T, D)
        return self.head(x, self.embedding)  # (B, T, V)


Model = Decoder | Encoder | Classifier | EncoderDecoder
