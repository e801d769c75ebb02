"""Position information in a model: position vectors, biases and rotations by distance, and a shuffle test.

The shuffle test permutes the tokens of a text and compares the model's answers. Because it needs only the input and the
output of the model, it applies to all position methods, and to models without positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution.case import AttributionCase, check_number
from glassformer.inspection.attribution.occlusion import MOST_LOGITS
from glassformer.model.transformer import Embedding, Model, Stack

__all__ = [
    "bias_by_distance",
    "by_distance",
    "distances_of",
    "embedding_of",
    "evenly_spaced",
    "position_vectors",
    "rotary_effect_by_distance",
    "shuffle_test",
]


def embedding_of(model: Model, stack: str) -> tuple[Stack, Embedding]:
    """Return a stack, "enc" or "dec", and its embedding.

    Raises:
        GlassError: the model has no such stack.
    """
    named_stacks = model.stacks
    if stack not in named_stacks:
        raise GlassError(f"this model has no stack {stack!r}", f"Choose one of: {', '.join(named_stacks)}.")
    return named_stacks[stack], model.embeddings[stack]


def position_vectors(embedding: Embedding, n_positions: int) -> Tensor | None:
    """Return the vectors added at positions 0, 1, …, (T, D) float64; None if no vectors are added."""
    if embedding.positions is None:
        return None
    device = embedding.tokens.weight.device
    with torch.no_grad():
        return embedding.positions(torch.arange(n_positions, device=device)[None])[0].cpu().double()  # (T, D)


def by_distance(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean dot product and the mean cosine similarity of vectors at distance 0, 1, …, (T) each.

    Args:
        vectors: position vectors, (T, D).
    """
    x = vectors.double()  # (T, D)
    unit = x / x.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)  # (T, D)

    def means(each: Tensor) -> Tensor:
        products = each @ each.T  # (T, T)
        return torch.stack([products.diagonal(distance).mean() for distance in range(len(each))])  # (T)

    return means(x), means(unit)


def distances_of(stack: Stack, max_count: int) -> Tensor:
    """Return up to `max_count` evenly spaced distances to earlier tokens, from 0 to the context minus 1.

    If the stack is not causal, also return the same distances to later tokens, as negative numbers.
    """
    distances = torch.tensor(evenly_spaced(stack.context, max_count))
    return distances if stack.causal else torch.cat([-distances[1:].flip(0), distances])


def evenly_spaced(count: int, max_count: int) -> list[int]:
    """Return at most `max_count` evenly spaced numbers below `count`, including the first and the last.

    If `max_count` is 1, only the first is returned.

    >>> evenly_spaced(3, 5), evenly_spaced(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    if count <= max_count:
        return list(range(count))
    if max_count == 1:
        return [0]
    return sorted({round(n * (count - 1) / (max_count - 1)) for n in range(max_count)})


def bias_by_distance(stack: Stack, distances: Tensor) -> Tensor | None:
    """Return the position bias of each head at given distances, (H, n) float64; None without position biases.

    Args:
        stack: a stack of any model.
        distances: distances to earlier tokens (negative: later tokens), (n) integers.
    """
    if stack.score_positions is None:
        return None
    distances_on_device = distances.to(next(stack.parameters()).device)[None, None]  # (1, 1, n)
    with torch.no_grad():
        bias: Tensor = stack.score_positions.by_distance(distances_on_device)  # (1, H, 1, n)
    return bias[0, :, 0].cpu().double()  # (H, n)


@dataclass(frozen=True, eq=False)
class RotaryEffect:
    """Effect of rotary positions on the score of a query and an identical key, by distance.

    Attributes:
        frequencies: (K/2) rotation of each pair of channels, in radians per position.
        pairs: (K/2, n) cosine of each pair's angle, the factor on its contribution to the score.
        mean: (n) mean of `pairs` over all pairs of channels.
    """

    frequencies: Tensor
    pairs: Tensor
    mean: Tensor


def rotary_effect_by_distance(stack: Stack, distances: Tensor) -> RotaryEffect | None:
    """Return the effect of rotary positions by distance; None if the positions are not rotary.

    Args:
        stack: a stack of any model.
        distances: distances in tokens, (n).
    """
    if stack.rotary is None:
        return None
    width = stack.rotary.head_width
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width  # (K/2)
    frequencies = stack.rotary.base**-exponents  # (K/2)
    pairs = torch.cos(frequencies[:, None] * distances.double())  # (K/2, n)
    return RotaryEffect(frequencies, pairs, pairs.mean(dim=0))


@dataclass(frozen=True, eq=False)
class ShuffleResult:
    """Result of a shuffle test for one output, with n permutations.

    Attributes:
        moved: positions whose tokens were permuted.
        before: ln p(answer) for the original text.
        after: (n) ln p(answer) for each permutation.
        divergence: (n) KL divergence from the original output distribution to that of the permutation, in nats.
        same: (n) bool, True if the likeliest answer is unchanged.
        orders: (n, moved) for each position in `moved`, the original position of the token that is placed there.
    """

    moved: tuple[int, ...]
    before: float
    after: Tensor
    divergence: Tensor
    same: Tensor
    orders: Tensor


def shuffle_test(
    case: AttributionCase, column: int, fixed: Sequence[int] = (), times: int = 16, seed: int = 0
) -> ShuffleResult:
    """Measure how an answer changes when tokens are permuted.

    In a decoder, the tokens before the output's position are permuted; the token at that position stays, so the model
    still continues the same token. In an encoder-decoder, the source tokens are permuted; in an encoder, all tokens.

    Args:
        case: the text and its outputs.
        column: index of the output in `case.outputs`.
        fixed: ids of tokens that are not moved, such as special tokens and [MASK].
        times: number of permutations.
        seed: seed of the permutations.

    Raises:
        GlassError: the output does not exist, or fewer than two tokens can be moved.
    """
    output = case.outputs[check_number("output", column, len(case.outputs))]
    candidates = case.tokens[0, : output.place] if case.model.config.family == "decoder" else case.tokens[0]
    moved = tuple(position for position, id in enumerate(candidates.tolist()) if id not in fixed)
    if len(moved) < 2:
        problem = f"only {len(moved)} token can be moved" if len(moved) == 1 else "no token can be moved"
        later = ", or a later position" if case.model.config.family == "decoder" else ""
        raise GlassError(f"there is nothing to shuffle: {problem}", f"Give a longer text{later}.")
    generator = torch.Generator().manual_seed(seed)
    orders = torch.stack([torch.randperm(len(moved), generator=generator) for _ in range(times)])  # (n, moved)
    rows = case.tokens.repeat(times, 1)  # (n, S)
    positions = torch.tensor(moved)
    rows[:, positions] = case.tokens[0, positions][orders]
    original_log_p = _log_p(case, case.tokens, column)[0]  # (V)
    rows_per_pass = max(1, MOST_LOGITS // (case.row.shape[1] * case.model.vocab_size))
    shuffled_log_p = torch.cat([_log_p(case, part, column) for part in rows.split(rows_per_pass)])  # (n, V)
    return ShuffleResult(
        moved=moved,
        before=float(original_log_p[output.answer]),
        after=shuffled_log_p[:, output.answer],
        divergence=(original_log_p.exp() * (original_log_p - shuffled_log_p)).sum(dim=-1),
        same=shuffled_log_p.argmax(dim=-1) == original_log_p.argmax(),
        orders=positions[orders],
    )


def _log_p(case: AttributionCase, tokens: Tensor, column: int) -> Tensor:
    """Return ln p of all answers at one output, (B, V) float64."""
    target = None if case.target is None else case.target.expand(len(tokens), -1)  # (B, T)
    return case.logits(tokens, target)[:, column].double().log_softmax(dim=-1)  # (B, V)
