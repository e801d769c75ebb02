"""A beam search as a tree: every hypothesis that was looked at, what it scored, and what became of it.

looks = []
found = beam_search(model, [prompt], settings, end_id, watch=looks.append)[0]
tree = tree_of(looks, found, settings.length_penalty)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from glassformer.generation.beam import Hypothesis, Look, penalty

Fate = Literal["ran on", "ended", "dropped"]


@dataclass(frozen=True)
class Node:
    """A hypothesis.

    Attributes:
        parent: the node without its last token; None of the first, which has no token.
        token: its last one; None of the first.
        tokens: how many it has.
        log_probability: the sum of the natural logarithms of their probabilities.
        score: that sum, divided by the length penalty.
        fate: "ran on" to the next step, or to the end of the search; "ended" by the end token; or "dropped".
        rank: its place among what the search found, from 0; None: it is not among it.
    """

    parent: int | None
    token: int | None
    tokens: int
    log_probability: float
    score: float
    fate: Fate
    rank: int | None = None


def tree_of(looks: Sequence[Look], found: Sequence[Hypothesis], length_penalty: float) -> tuple[Node, ...]:
    """The tree of one source's search; parents stand before their children, and the first node is the root.

    Args:
        looks: its steps, as `watch` was told them.
        found: what the search gave.
        length_penalty: of its settings.
    """
    nodes = [Node(None, None, 0, 0.0, 0.0, "ran on")]
    places: dict[tuple[int, ...], int] = {(): 0}
    for look in looks:
        runs = set(look.after)
        for child in look.children:
            before = look.before[child.parent]
            tokens = (*before, child.token)
            score = child.log_probability / penalty(len(tokens), length_penalty)
            fate: Fate = "ran on" if tokens in runs else "dropped"
            places[tokens] = len(nodes)
            nodes.append(Node(places[before], child.token, len(tokens), child.log_probability, score, fate))
    for rank, hypothesis in enumerate(found):
        place = places[hypothesis.tokens]
        fate = "ended" if hypothesis.ended == "end" else "ran on"
        nodes[place] = replace(nodes[place], rank=rank, fate=fate)
    return tuple(nodes)
