"""Attention rollout: the contribution of each input token to each position's vector (Abnar and Zuidema 2020).

The residual stream after an attention layer is taken to be half the stream before it and half the attention's output:

    R_l = (A_l / 2 + I / 2) R_{l-1},    R_0 = I,    A_l: attention weights, mean over heads

In an encoder-decoder, source tokens contribute to target positions, too: cross-attention halves the contributions so
far and adds half of its weights times the encoder's rollout. The contributions to a position, from target and source
together, add up to 1.

Rollout considers only attention weights, not values or feed-forward layers. In decoders, it favours the first tokens,
which are visible to most positions. Compare it with `uniform`: the rollout of uniform attention over all visible tokens
shows this effect alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.inspection.traced import AttentionTrace, StackTrace, Trace


@dataclass(frozen=True, eq=False)
class Mix:
    """Mixing matrices of one attention layer and its residual connection; their values for a position add up to 1.

    Attributes:
        row: (T, T) float64, weights of the positions of the row.
        memory: (T, S) float64, weights of the encoder's positions; None for self-attention.
    """

    row: Tensor
    memory: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Rollout:
    """Contributions of the input tokens to the vector at each position, after each layer.

    Attributes:
        row: (L, T, T) float64, contributions of the row's tokens.
        source: (L, T, S) float64, contributions of the source tokens of an encoder-decoder; otherwise None.
    """

    row: Tensor
    source: Tensor | None

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return {"own": self.row.tolist(), "source": None if self.source is None else self.source.tolist()}


def rollout(trace: Trace, uniform: bool = False) -> Rollout:
    """Compute the attention rollout of the first row.

    Args:
        trace: forward pass of a model of any family, with any `norm_order`.
        uniform: whether to replace attention by uniform weights over all visible tokens.
    """
    memory = None
    if trace.source is not None:
        memory = torch.eye(trace.source.ids.shape[1], dtype=torch.float64)  # (S, S)
        for layer in mixes(trace.source, uniform):
            for mix in layer:
                memory = mix.row @ memory  # (S, S)
    T = trace.stack.ids.shape[1]
    contributions = torch.eye(T, dtype=torch.float64)  # (T, T)
    source_contributions = None if memory is None else torch.zeros(T, len(memory), dtype=torch.float64)  # (T, S)
    by_layer = []
    source_by_layer = []
    for layer in mixes(trace.stack, uniform):
        for mix in layer:
            contributions = mix.row @ contributions  # (T, T)
            if source_contributions is not None and memory is not None:
                source_contributions = mix.row @ source_contributions  # (T, S)
                source_contributions = (
                    source_contributions if mix.memory is None else source_contributions + mix.memory @ memory
                )  # (T, S)
        by_layer.append(contributions)
        source_by_layer.append(source_contributions)
    source_layers = [contribution for contribution in source_by_layer if contribution is not None]
    return Rollout(torch.stack(by_layer), torch.stack(source_layers) if source_layers else None)


def mixes(stack: StackTrace, uniform: bool = False) -> list[list[Mix]]:
    """Return the mixing matrices of each layer: of self-attention and, if there is cross-attention, of cross-attention.

    Cross-attention without heads has a matrix only if `uniform` is True.
    """
    layers = []
    for block in stack.blocks:
        half = torch.eye(stack.ids.shape[1], dtype=torch.float64) / 2  # (T, T)
        weights = _mean_weights(block.attention, uniform)  # (T, T)
        layer = [Mix(2 * half if weights is None else weights / 2 + half)]
        weights = None if block.cross is None else _mean_weights(block.cross, uniform)  # (T, S)
        if weights is not None:
            layer.append(Mix(half, weights / 2))
        layers.append(layer)
    return layers


def _mean_weights(attention_trace: AttentionTrace, uniform: bool) -> Tensor | None:
    """Return the attention weights of the first row, (T, S), averaged over heads; None if all heads were removed.

    With `uniform`, return equal weights over the allowed keys instead, even if all heads were removed.
    """
    if uniform:
        allowed = attention_trace.allowed[0, 0].cpu().double().expand(attention_trace.pattern.shape[2:])  # (T, S)
        return allowed / allowed.sum(dim=-1, keepdim=True)
    return attention_trace.pattern[0].cpu().double().mean(dim=0) if attention_trace.heads else None


def read_by(values: Tensor, reads: Sequence[Sequence[int]]) -> Tensor:
    """Average the rows of `values` (T, S) over the positions that each output reads, and return (P, S)."""
    return torch.stack([values[list(positions)].mean(dim=0) for positions in reads])
