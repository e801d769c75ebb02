"""Attention flow: the maximum flow from an output down to each input token (Abnar and Zuidema 2020).

The tokens at each layer are the nodes of a network. As in `rollout`, the edge from position i of a layer to position j
of the layer below has a capacity of half the attention weight (mean over heads), plus one half if i = j. The flow to
each token is computed independently, so the flows to all tokens need not add up to 1. Cross-attention is a separate
level: its edges to the encoder's positions have half of its weights as capacities, and an edge of capacity one half
leads to the same position one level below. An output that pools n positions has an edge of capacity 1 / n to each of
these positions. After one layer of self-attention, the flow from an output that reads one position equals its rollout.

The time for all positions grows as L² T⁴, so attention flow is meant for short texts, one output at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import span
from glassformer.inspection.attribution.case import check_number
from glassformer.inspection.attribution.rollout import mixes
from glassformer.inspection.trace import Trace

MOST_TOKENS = 48
"""Maximum number of tokens of the text, or of source and target together."""
ROUNDING = 1e-15
"""Residual capacity at or below which an edge is full; capacities are at most 1."""


@dataclass(frozen=True, eq=False)
class AttentionFlow:
    """Attention flow from one output to all tokens.

    Attributes:
        reads: position that the output reads, or all positions that it pools.
        layers: number of layers, counted from the first layer of the stack that yields the logits.
        row: (T) float64, the flow to each token of the row.
        source: (S) float64, the flow to each source token of an encoder-decoder; otherwise None.
    """

    reads: tuple[int, ...]
    layers: int
    row: Tensor
    source: Tensor | None

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        source = None if self.source is None else self.source.tolist()
        return {"reads": list(self.reads), "layers": self.layers, "own": self.row.tolist(), "source": source}


def flow(trace: Trace, reads: Sequence[int], layers: int | None = None) -> AttentionFlow:
    """Compute the attention flow of one output of the first row.

    Args:
        trace: forward pass of a model of any family.
        reads: position that the output reads, or all positions that it pools.
        layers: number of layers, counted from the first layer of the stack that yields the logits; None: all. In
            an encoder-decoder, every layer of the encoder is included.

    Raises:
        GlassError: there are more than `MOST_TOKENS` tokens, or a position or `layers` is out of range.
    """
    T = trace.stack.ids.shape[1]
    S = 0 if trace.source is None else trace.source.ids.shape[1]
    if T + S > MOST_TOKENS:
        raise GlassError(
            f"attention flow of {T + S} tokens takes too long: the time grows with the fourth power of the length",
            f"Give at most {MOST_TOKENS} tokens, source and target together, or use rollout.",
        )
    for position in reads:
        check_number("position", position, T)
    count = len(trace.stack.blocks)
    layers = count if layers is None else layers
    if not 1 <= layers <= count:
        raise GlassError(f"layers is {layers}, but the number of layers is {count}", f"Give {span(1, count)}.")
    network = Network()
    memory = range(S)
    n_nodes = S + T
    tokens = range(S, S + T)
    for layer in [] if trace.source is None else mixes(trace.source):
        for mix in layer:
            network.add_edges(mix.row, range(n_nodes, n_nodes + S), memory)
            memory = range(n_nodes, n_nodes + S)
            n_nodes += S
    level = tokens
    for layer in mixes(trace.stack)[:layers]:
        for mix in layer:
            above = range(n_nodes, n_nodes + T)
            network.add_edges(mix.row, above, level)
            if mix.memory is not None:
                network.add_edges(mix.memory, above, memory)
            level = above
            n_nodes += T
    network.add_edges(
        torch.full((1, len(reads)), 1 / len(reads), dtype=torch.float64),
        range(n_nodes, n_nodes + 1),
        [level[position] for position in reads],
    )
    flows = [network.max_flow(n_nodes, token) for token in range(S + T)]
    values = torch.tensor(flows, dtype=torch.float64)  # (S + T)
    return AttentionFlow(tuple(reads), layers, values[S:], values[:S] if S else None)


class Network:
    """Flow network with Dinic's maximum-flow algorithm (Dinic 1970); the flow is exact up to rounding."""

    def __init__(self) -> None:
        self._capacities: dict[int, dict[int, float]] = {}

    def add_edges(self, capacities: Tensor, above: Sequence[int], below: Sequence[int]) -> None:
        """Add an edge from each node in `above` to each in `below`, with the given `capacities`, (above, below)."""
        for start, row in zip(above, capacities.tolist(), strict=True):
            edges = self._capacities.setdefault(start, {})
            edges |= {end: capacity for end, capacity in zip(below, row, strict=True) if capacity > 0}

    def max_flow(self, start: int, end: int) -> float:
        """Return the maximum flow from one node to another."""
        residual = self._residual_capacities(start)
        total = 0.0
        while (depth := _depths(residual, start)).get(end) is not None:
            unexplored = {node: iter(list(neighbours)) for node, neighbours in residual.items()}
            path = [start]
            while path:
                if path[-1] == end:
                    path_edges = list(pairwise(path))
                    bottleneck = min(residual[a][b] for a, b in path_edges)
                    for a, b in path_edges:
                        residual[a][b] -= bottleneck
                        residual[b][a] = residual[b].get(a, 0.0) + bottleneck
                    total += bottleneck
                    full_edge = next(n for n, (a, b) in enumerate(path_edges) if residual[a][b] <= ROUNDING)
                    del path[full_edge + 1 :]
                    continue
                node = path[-1]
                next_nodes = (
                    neighbour
                    for neighbour in unexplored[node]
                    if residual[node][neighbour] > ROUNDING and depth.get(neighbour) == depth[node] + 1
                )
                next_node = next(next_nodes, None)
                path.append(next_node) if next_node is not None else path.pop()
        return total

    def _residual_capacities(self, start: int) -> dict[int, dict[int, float]]:
        """Return the capacities of all edges that can be reached from a node, as initial residual capacities."""
        residual: dict[int, dict[int, float]] = {start: {}}
        waiting = [start]
        while waiting:
            node = waiting.pop()
            residual[node] = dict(self._capacities.get(node, {}))
            for below in residual[node]:
                if below not in residual:
                    residual[below] = {}
                    waiting.append(below)
        return residual


def _depths(residual: dict[int, dict[int, float]], start: int) -> dict[int, int]:
    """Return the distance from `start` to each reachable node, in edges with residual capacity."""
    depth = {start: 0}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for other, capacity in residual[node].items():
            if capacity > ROUNDING and other not in depth:
                depth[other] = depth[node] + 1
                waiting.append(other)
    return depth
