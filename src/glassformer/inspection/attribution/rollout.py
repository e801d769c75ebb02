"""Attention rollout: where the vector of each place comes from, if attention were all that moves. Abnar & Zuidema 2020.

Half of what leaves an attention is taken to be its input, half what its heads, on average, attend to:

    R_l = (A_l / 2 + I / 2) R_{l-1},    A_l the mean over heads, R_0 = I

In an encoder-decoder the target's places have a share of the source's, too: cross-attention halves what is there, and
adds half of what its weights bring from the encoder's own rollout. So each row's shares, of both, add up to 1.

It is about weights, not values or feed-forward layers. In decoders it leans to the first tokens, which most rows see:
compare `uniform`, the same for attention that is equal over all that is visible.
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
    """One attention with the residual stream around it; each row of `own` and `memory` together adds up to 1.

    Attributes:
        own: (T, T) float64, shares of the places of the row.
        memory: (T, S) shares of the encoder's places; None of self-attention.
    """

    own: Tensor
    memory: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Rollout:
    """The shares of each place's vector, after each layer.

    Attributes:
        own: (L, T, T) float64, from the tokens of the row itself.
        source: (L, T, S) from the tokens of the source, of an encoder-decoder; else None.
    """

    own: Tensor
    source: Tensor | None

    def facts(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"own": self.own.tolist(), "source": None if self.source is None else self.source.tolist()}


def rollout(trace: Trace, uniform: bool = False) -> Rollout:
    """The rollout of the first row.

    Args:
        trace: of a forward pass of any family, with any order of norms.
        uniform: as if each head attended equally to all that it may see.
    """
    memory = None
    if trace.source is not None:
        memory = torch.eye(trace.source.ids.shape[1], dtype=torch.float64)  # (S, S)
        for layer in mixes(trace.source, uniform):
            for mix in layer:
                memory = mix.own @ memory  # (S, S)
    T = trace.stack.ids.shape[1]
    own = torch.eye(T, dtype=torch.float64)  # (T, T)
    source = None if memory is None else torch.zeros(T, len(memory), dtype=torch.float64)  # (T, S)
    owns = []
    sources = []
    for layer in mixes(trace.stack, uniform):
        for mix in layer:
            own = mix.own @ own  # (T, T)
            if source is not None and memory is not None:
                source = mix.own @ source  # (T, S)
                source = source if mix.memory is None else source + mix.memory @ memory  # (T, S)
        owns.append(own)
        sources.append(source)
    found = [each for each in sources if each is not None]
    return Rollout(torch.stack(owns), torch.stack(found) if found else None)


def mixes(stack: StackTrace, uniform: bool = False) -> list[list[Mix]]:
    """The attentions of each layer: self, and cross where there is one."""
    found = []
    for block in stack.blocks:
        half = torch.eye(stack.ids.shape[1], dtype=torch.float64) / 2  # (T, T)
        weights = _mean(block.attention, uniform)  # (T, T)
        layer = [Mix(2 * half if weights is None else weights / 2 + half)]
        weights = None if block.cross is None else _mean(block.cross, uniform)  # (T, S)
        if weights is not None:
            layer.append(Mix(half, weights / 2))
        found.append(layer)
    return found


def _mean(made: AttentionTrace, uniform: bool) -> Tensor | None:
    """The weights of the first row, the mean over heads: (T, S). None where all heads were removed."""
    if uniform:
        allowed = made.allowed[0, 0].cpu().double().expand(made.weights.shape[2:])  # (T, S)
        return allowed / allowed.sum(dim=-1, keepdim=True)
    return made.weights[0].cpu().double().mean(dim=0) if made.heads else None


def read_by(values: Tensor, reads: Sequence[Sequence[int]]) -> Tensor:
    """Rows of places (T, S) as rows of outputs (P, S): the mean over the places that each output reads."""
    return torch.stack([values[list(places)].mean(dim=0) for places in reads])
