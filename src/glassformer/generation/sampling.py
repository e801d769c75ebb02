"""Turn the logits of one position into one token: pure functions, all on the CPU in float64.

The order is fixed: repetition penalty, temperature, top-k, top-p, draw. Where two tokens are equally likely, the lower
id comes first, so no result depends on how a sort happens to place equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig

ROUNDING = 1e-9  # a share that misses top_p by less than this reaches it
DRAWN = 8192  # random numbers that a row draws at once


def probabilities(logits: Tensor, settings: SampleConfig, previous: Sequence[int] = ()) -> Tensor:
    """The distribution that the next token is drawn from.

    Args:
        logits: (V,) of one position, any float type.
        settings: temperature 0 puts everything on the likeliest token.
        previous: ids already present (prompt and generated), for the repetition penalty.

    Returns:
        (V,) float64, on the CPU; sums to 1.
    """
    return row_probabilities(logits[None], settings, [previous])[0]


def row_probabilities(logits: Tensor, settings: SampleConfig, previous: Sequence[Sequence[int]]) -> Tensor:
    """`probabilities` of several rows at once: logits (B, V) and each row's earlier ids -> (B, V) float64."""
    scores = logits.detach().to(device="cpu").to(torch.float64)  # (B, V); in two steps: MPS has no float64
    if settings.repetition_penalty != 1.0:
        rows = zip(scores, previous, strict=True)
        scores = torch.stack([penalized(row, ids, settings.repetition_penalty) for row, ids in rows])  # (B, V)
    if settings.temperature == 0:
        likeliest = scores.argmax(dim=-1, keepdim=True)  # (B, 1); the first of equals
        return torch.zeros_like(scores).scatter_(-1, likeliest, 1.0)  # (B, V)
    scores = scores - scores.amax(dim=-1, keepdim=True)  # (B, V); first, or a tiny temperature overflows
    scores = scores / settings.temperature
    if settings.top_k is not None and settings.top_k < scores.shape[-1]:
        scores = scores.masked_fill(~among_top_k(scores, settings.top_k), -torch.inf)  # (B, V)
    result = scores.softmax(dim=-1)  # (B, V)
    if settings.top_p is not None and settings.top_p < 1:
        result = result.masked_fill(~among_top_p(result, settings.top_p), 0.0)  # (B, V)
        result = result / result.sum(dim=-1, keepdim=True)  # (B, V)
    return result


def penalized(scores: Tensor, previous: Sequence[int], penalty: float) -> Tensor:
    """Scores (V,) with those of ids already present made less likely (Keskar et al. 2019, section 4.1).

    Positive scores are divided by the penalty, negative ones multiplied: both go down.
    """
    ids = torch.tensor(previous, dtype=torch.long)
    seen = scores[ids]
    return scores.index_put((ids,), torch.where(seen > 0, seen / penalty, seen * penalty))


def among_top_k(scores: Tensor, k: int) -> Tensor:
    """True at the k highest scores (Fan et al. 2018): (B, V) -> (B, V) bool, exactly k in each row."""
    last = scores.topk(k, dim=-1).values[:, -1:]  # (B, 1)
    above = scores > last  # (B, V)
    equal = scores == last  # (B, V)
    room = k - above.sum(dim=-1, keepdim=True)  # (B, 1)
    return above | (equal & (equal.cumsum(dim=-1) <= room))


def among_top_p(shares: Tensor, p: float) -> Tensor:
    """True in the smallest set of likeliest tokens that holds at least p (Holtzman et al. 2020).

    (B, V) probabilities -> (B, V) bool, at least one in each row.
    """
    ordered, ids = shares.sort(dim=-1, descending=True, stable=True)  # (B, V)
    before = ordered.cumsum(dim=-1).roll(1, dims=-1)  # (B, V): what the likelier tokens hold
    before[:, 0] = 0.0
    keep = before < p - ROUNDING
    keep[:, 0] = True
    return torch.zeros_like(keep).scatter_(-1, ids, keep)


def race_times(size: int, random: torch.Generator) -> Tensor:
    """One exponentially distributed number above 0 for each token, (size,) float64: what `draw` needs."""
    return next(races(size, random, ahead=1))


def races(size: int, random: torch.Generator, ahead: int | None = None) -> Iterator[Tensor]:
    """Yield the results of `race_times`, call after call, without end; `ahead` of them are drawn at once.

    `ahead` None: about as many as `DRAWN` numbers are. What else is drawn from `random` meanwhile would differ.
    """
    ahead = max(1, DRAWN // size) if ahead is None else ahead
    while True:
        uniform = torch.rand(ahead, size, generator=random, dtype=torch.float64)
        yield from (-torch.log1p(-uniform).clamp(max=-1e-300)).unbind()


def draw(shares: Tensor, times: Tensor) -> int:
    """One token: each runs at a speed equal to its probability, and the first to arrive is drawn.

    The winner has exactly the given probabilities (the exponential race, or Gumbel's trick: Maddison et al. 2014,
    section 2). The cumulative distribution at one uniform number would do as well, but there a rounding error in one
    probability moves the places of all later tokens. Here it moves that token alone, so rounding (the logits of a
    row depend on the size of its batch in the 7th digit) changes the drawn token about as seldom as can be.

    Args:
        shares: (V,) probabilities.
        times: (V,) from `race_times`.
    """
    return draw_rows(shares[None], times[None])[0]


def draw_rows(shares: Tensor, times: Tensor) -> list[int]:
    """`draw` for each row: probabilities and times, (B, V) each, -> B ids."""
    return (shares / times).argmax(dim=-1).tolist()


def ranked(logits: Tensor, n: int) -> list[tuple[int, float]]:
    """The n likeliest tokens with their probabilities over the whole vocabulary, temperature 1.

    Args:
        logits: (V,) of one position.
        n: how many; all where n is V or more.
    """
    shares = logits.detach().to(device="cpu").to(torch.float64).softmax(dim=-1)  # (V,)
    ordered, ids = shares.sort(descending=True, stable=True)
    return list(zip(ids[:n].tolist(), ordered[:n].tolist(), strict=True))
