"""Positions in a model: vectors that are added, biases and turns by distance, and whether order matters.

The shuffle test asks the model itself: its tokens change places, and what it then answers is compared. It is about
causes, so it holds for all kinds of positions, and for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution.case import AttributionCase, check_number
from glassformer.inspection.sites import embedding_below, stacks
from glassformer.model.transformer import Embedding, Model, Stack

__all__ = [
    "bias_by_distance",
    "by_distance",
    "distances_of",
    "embedding_of",
    "evenly",
    "place_vectors",
    "shuffle_test",
    "turn_by_distance",
]
MOST_LOGITS = 1 << 23
"""Most logits of one forward pass."""


def embedding_of(model: Model, stack: str) -> tuple[Stack, Embedding]:
    """A stack, "enc" or "dec", and the embedding below it.

    Raises:
        GlassError: the model has no such stack.
    """
    found = stacks(model)
    if stack not in found:
        raise GlassError(f"this model has no stack {stack!r}", f"It has {', '.join(found)}.")
    return found[stack], embedding_below(model, stack)


def place_vectors(embedding: Embedding, places: int) -> Tensor | None:
    """The vectors that are added to tokens at places 0, 1, …: (T, D) float64; None where none is added."""
    if embedding.positions is None:
        return None
    device = embedding.tokens.weight.device
    with torch.no_grad():
        return embedding.positions(torch.arange(places, device=device)[None])[0].cpu().double()  # (T, D)


def by_distance(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean dot product and the mean cosine of positions at distance 0, 1, …, (T) each.

    Args:
        vectors: (T, D).
    """
    x = vectors.double()  # (T, D)
    unit = x / x.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)  # (T, D)

    def means(each: Tensor) -> Tensor:
        products = each @ each.T  # (T, T)
        return torch.stack([products.diagonal(distance).mean() for distance in range(len(each))])  # (T)

    return means(x), means(unit)


def distances_of(stack: Stack, most: int) -> Tensor:
    """Distances looked back, 0 to the context's, or at most so many, evenly drawn; negative ones if it looks ahead."""
    back = torch.tensor(evenly(stack.context, most))
    return back if stack.causal else torch.cat([-back[1:].flip(0), back])


def evenly(count: int, most: int) -> list[int]:
    """Return all numbers below `count`, or `most` evenly spaced ones, the first and the last among them.

    >>> evenly(3, 5), evenly(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(n * (count - 1) / (most - 1)) for n in range(most)})


def bias_by_distance(stack: Stack, distances: Tensor) -> Tensor | None:
    """Return what each head adds to scores at a distance looked back (negative: ahead): (H, n); None without biases.

    Args:
        stack: of any model.
        distances: (n) whole numbers.
    """
    if stack.score_positions is None:
        return None
    back = distances.to(next(stack.parameters()).device)[None, None]  # (1, 1, n)
    with torch.no_grad():
        bias: Tensor = stack.score_positions.by_distance(back)  # (1, H, 1, n)
    return bias[0, :, 0].cpu().double()  # (H, n)


@dataclass(frozen=True, eq=False)
class Turning:
    """The effect of rotary positions on a score at each distance, if query and key are alike in all channels.

    Attributes:
        frequencies: (K/2) radians for each place, of each pair of channels.
        pairs: (K/2, n) the cosine of each pair's angle: the share of its product that is left.
        mean: (n) over all pairs.
    """

    frequencies: Tensor
    pairs: Tensor
    mean: Tensor


def turn_by_distance(stack: Stack, distances: Tensor) -> Turning | None:
    """The rotary curves; None where positions are not rotary.

    Args:
        stack: any.
        distances: (n).
    """
    if stack.rotary is None:
        return None
    width = stack.rotary.head_width
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width  # (K/2)
    frequencies = stack.rotary.base**-exponents  # (K/2)
    pairs = torch.cos(frequencies[:, None] * distances.double())  # (K/2, n)
    return Turning(frequencies, pairs, pairs.mean(dim=0))


@dataclass(frozen=True, eq=False)
class Shuffled:
    """One answer, of the text as it is and of the text with its tokens in other orders.

    Attributes:
        moved: the places whose tokens changed places.
        before: ln p(answer) of the text as it is.
        after: (n) the same of each order.
        divergence: (n) KL of all answers' probabilities, as they are, from those of the order, in nats.
        same: (n) bool, whether the likeliest answer is still the same.
        orders: (n, moved) which place each token came from.
    """

    moved: tuple[int, ...]
    before: float
    after: Tensor
    divergence: Tensor
    same: Tensor
    orders: Tensor


def shuffle_test(
    case: AttributionCase, column: int, fixed: Sequence[int] = (), times: int = 16, seed: int = 0
) -> Shuffled:
    """Measure an answer while the tokens before it, or those of the source, stand in other orders.

    Of a decoder all tokens before the last one that the answer sees are moved: the last one stays, so the model
    still continues the same token. Of an encoder-decoder the source's are, of an encoder all of the text's.

    Args:
        case: the text and its answers.
        column: which of its outputs.
        fixed: ids that stay where they are: those of frames, and of holes.
        times: orders that are tried.
        seed: of the orders.

    Raises:
        GlassError: there is no such output, or fewer than two tokens could move.
    """
    output = case.outputs[check_number("output", column, len(case.outputs))]
    seen = case.tokens[0, : output.place] if case.model.config.family == "decoder" else case.tokens[0]
    moved = tuple(place for place, id in enumerate(seen.tolist()) if id not in fixed)
    if len(moved) < 2:
        problem = f"{len(moved)} token could move" if len(moved) == 1 else "no token could move"
        raise GlassError(f"there is nothing to shuffle: {problem}", "Give a longer text, or a later place.")
    generator = torch.Generator().manual_seed(seed)
    orders = torch.stack([torch.randperm(len(moved), generator=generator) for _ in range(times)])  # (n, moved)
    rows = case.tokens.repeat(times, 1)  # (n, S)
    places = torch.tensor(moved)
    rows[:, places] = case.tokens[0, places][orders]
    as_it_is = _log_p(case, case.tokens, column)[0]  # (V)
    size = max(1, MOST_LOGITS // (case.row.shape[1] * case.model.vocab_size))
    other = torch.cat([_log_p(case, part, column) for part in rows.split(size)])  # (n, V)
    return Shuffled(
        moved=moved,
        before=float(as_it_is[output.answer]),
        after=other[:, output.answer],
        divergence=(as_it_is.exp() * (as_it_is - other)).sum(dim=-1),
        same=other.argmax(dim=-1) == as_it_is.argmax(),
        orders=places[orders],
    )


def _log_p(case: AttributionCase, tokens: Tensor, column: int) -> Tensor:
    """ln p of all answers at one output: (B, V) float64."""
    target = None if case.target is None else case.target.expand(len(tokens), -1)  # (B, T)
    return case.logits(tokens, target)[:, column].double().log_softmax(dim=-1)  # (B, V)
