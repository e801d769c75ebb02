"""Turn the logits of one position into one token: pure functions, all on the CPU in float64.

The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, sampling. Where two tokens are equally likely,
the lower id comes first, so no result depends on how a sort happens to place equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig

ROUNDING = 1e-9  # a sum of probabilities that misses top_p by less than this reaches it
NOISE_AT_ONCE = 8192  # random numbers that a row generates at once


def probabilities(logits: Tensor, settings: SampleConfig, previous: Sequence[int] = ()) -> Tensor:
    """Return the distribution from which the next token is sampled.

    Args:
        logits: (V,) of one position, any float type.
        settings: temperature 0 gives the likeliest token probability 1.
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
    if settings.min_p is not None:
        result = result.masked_fill(~among_min_p(result, settings.min_p), 0.0)  # (B, V)
        result = result / result.sum(dim=-1, keepdim=True)  # (B, V)
    return result


def penalized(scores: Tensor, previous: Sequence[int], penalty: float) -> Tensor:
    """Return scores (V,) with those of ids already present lowered (Keskar et al. 2019, section 4.1).

    Positive scores are divided by the penalty, negative ones multiplied: both go down.
    """
    ids = torch.tensor(previous, dtype=torch.long)
    seen = scores[ids]
    return scores.index_put((ids,), torch.where(seen > 0, seen / penalty, seen * penalty))


def among_top_k(scores: Tensor, k: int) -> Tensor:
    """Return True at the k highest scores (Fan et al. 2018): (B, V) -> (B, V) bool, exactly k in each row."""
    last = scores.topk(k, dim=-1).values[:, -1:]  # (B, 1)
    above = scores > last  # (B, V)
    equal = scores == last  # (B, V)
    room = k - above.sum(dim=-1, keepdim=True)  # (B, 1)
    return above | (equal & (equal.cumsum(dim=-1) <= room))


def among_top_p(probabilities: Tensor, p: float) -> Tensor:
    """Return True in the smallest set of likeliest tokens that holds at least p (Holtzman et al. 2020).

    (B, V) probabilities -> (B, V) bool, at least one in each row.
    """
    ordered, ids = probabilities.sort(dim=-1, descending=True, stable=True)  # (B, V)
    before = ordered.cumsum(dim=-1).roll(1, dims=-1)  # (B, V): the sum over likelier tokens
    before[:, 0] = 0.0
    keep = before < p - ROUNDING
    keep[:, 0] = True
    return torch.zeros_like(keep).scatter_(-1, ids, keep)


def among_min_p(probabilities: Tensor, share: float) -> Tensor:
    """Return True where a token has at least `share` of the likeliest one's probability (Nguyen et al. 2024).

    (B, V) probabilities -> (B, V) bool, True for the likeliest.
    """
    return probabilities >= share * probabilities.amax(dim=-1, keepdim=True)  # (B, V)


def exponential_noise(size: int, random: torch.Generator) -> Iterator[Tensor]:
    """Yield exponentially distributed numbers above 0, (size,) float64, without end: the noise of `sample_token`.

    Several are generated at once, so nothing else may use `random` meanwhile.
    """
    ahead = max(1, NOISE_AT_ONCE // size)
    while True:
        uniform = torch.rand(ahead, size, generator=random, dtype=torch.float64)
        yield from (-torch.log1p(-uniform).clamp(max=-1e-300)).unbind()


def sample_token(probabilities: Tensor, noise: Tensor) -> int:
    """Sample one token: the largest probability divided by its exponential noise.

    The token has exactly the given probabilities (exponential noise, in logarithms Gumbel noise: Maddison et al. 2014,
    section 2). The cumulative distribution at one uniform number would do as well, but there a rounding error in one
    probability moves the positions of all later tokens. Here it moves that token alone, so rounding (the logits of a
    row depend on the size of its batch in the 7th digit) changes the sampled token about as seldom as possible.

    Args:
        probabilities: (V,).
        noise: (V,) from `exponential_noise`.
    """
    return sample_tokens(probabilities[None], noise[None])[0]


def sample_tokens(probabilities: Tensor, noise: Tensor) -> list[int]:
    """`sample_token` for each row: probabilities and noise, (B, V) each, -> B ids."""
    return (probabilities / noise).argmax(dim=-1).tolist()


def ranked(logits: Tensor, n: int) -> list[tuple[int, float]]:
    """Return the n likeliest tokens with their probabilities over the whole vocabulary, temperature 1.

    Args:
        logits: (V,) of one position.
        n: number of tokens; all if n is V or more.
    """
    all_probabilities = logits.detach().to(device="cpu").to(torch.float64).softmax(dim=-1)  # (V,)
    ordered, ids = all_probabilities.sort(descending=True, stable=True)
    return list(zip(ids[:n].tolist(), ordered[:n].tolist(), strict=True))
