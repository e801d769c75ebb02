"""Sample the next token of each row from its logits, on the CPU in float64.

The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, sampling. If two tokens are equally likely,
the lower id comes first, so no result depends on how a sort orders equal values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig

ROUNDING = 1e-9  # tolerance when a sum of probabilities is compared with top_p
NOISE_AT_ONCE = 8192  # number of random numbers generated at once for a row


def probabilities(logits: Tensor, settings: SampleConfig, previous: Sequence[int] = ()) -> Tensor:
    """Return the distribution from which the next token is sampled.

    Args:
        logits: (V,) of one position, any float type.
        settings: sampling settings; with temperature 0 the likeliest token has probability 1.
        previous: earlier ids (prompt and generated), for the repetition penalty.

    Returns:
        (V,) float64, on the CPU; sums to 1.
    """
    return row_probabilities(logits[None], settings, [previous])[0]


def row_probabilities(logits: Tensor, settings: SampleConfig, previous: Sequence[Sequence[int]]) -> Tensor:
    """Return the sampling distribution of each row, (B, V) float64, given logits (B, V) and previous ids."""
    scores = logits.detach().to(device="cpu").to(torch.float64)  # (B, V); in two steps: MPS has no float64
    if settings.repetition_penalty != 1.0:
        rows = zip(scores, previous, strict=True)
        scores = torch.stack([penalized(row, ids, settings.repetition_penalty) for row, ids in rows])  # (B, V)
    if settings.temperature == 0:
        likeliest = scores.argmax(dim=-1, keepdim=True)  # (B, 1); the lowest id if several are equal
        return torch.zeros_like(scores).scatter_(-1, likeliest, 1.0)  # (B, V)
    scores = scores - scores.amax(dim=-1, keepdim=True)  # (B, V); avoids overflow at a tiny temperature
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
    """Apply the repetition penalty to scores (V,): lower the scores of earlier ids (Keskar et al. 2019, section 4.1).

    Positive scores are divided by the penalty, negative scores multiplied by it.
    """
    ids = torch.tensor(previous, dtype=torch.long)
    previous_scores = scores[ids]
    return scores.index_put(
        (ids,), torch.where(previous_scores > 0, previous_scores / penalty, previous_scores * penalty)
    )


def among_top_k(scores: Tensor, k: int) -> Tensor:
    """Return a mask of the k highest scores of each row (Fan et al. 2018): (B, V) -> (B, V) bool, exactly k True."""
    kth = scores.topk(k, dim=-1).values[:, -1:]  # (B, 1)
    above = scores > kth  # (B, V)
    equal = scores == kth  # (B, V)
    remaining = k - above.sum(dim=-1, keepdim=True)  # (B, 1)
    return above | (equal & (equal.cumsum(dim=-1) <= remaining))


def among_top_p(probabilities: Tensor, p: float) -> Tensor:
    """Return a mask of the smallest set of likeliest tokens with total probability at least p (Holtzman et al. 2020).

    (B, V) probabilities -> (B, V) bool, at least one True in each row. Totals are compared up to rounding (`ROUNDING`).
    """
    ordered, ids = probabilities.sort(dim=-1, descending=True, stable=True)  # (B, V)
    before = ordered.cumsum(dim=-1).roll(1, dims=-1)  # (B, V): total probability of likelier tokens
    before[:, 0] = 0.0
    keep = before < p - ROUNDING
    keep[:, 0] = True
    return torch.zeros_like(keep).scatter_(-1, ids, keep)


def among_min_p(probabilities: Tensor, min_p: float) -> Tensor:
    """Return a mask of tokens with at least `min_p` times the highest probability (Nguyen et al. 2024).

    (B, V) probabilities -> (B, V) bool, always True for the likeliest token.
    """
    return probabilities >= min_p * probabilities.amax(dim=-1, keepdim=True)  # (B, V)


def exponential_noise(size: int, random: torch.Generator) -> Iterator[Tensor]:
    """Yield arrays of positive exponential noise, (size,) float64, for `sample_token`; the iterator never ends.

    Noise is generated in advance, so nothing else may use the generator `random`.
    """
    n_rows = max(1, NOISE_AT_ONCE // size)
    while True:
        uniform = torch.rand(n_rows, size, generator=random, dtype=torch.float64)
        yield from (-torch.log1p(-uniform).clamp(max=-1e-300)).unbind()


def sample_token(probabilities: Tensor, noise: Tensor) -> int:
    """Sample one token: the argmax of probability divided by exponential noise.

    This samples exactly from the given distribution (in logarithms it is the Gumbel-max trick: Maddison et al. 2014,
    section 2). Inverting the cumulative distribution at a uniform number would sample exactly too, but there a rounding
    error in one probability shifts the limits of all later tokens. Here it affects one token only, so rounding (the 7th
    digit of a row's logits depends on the batch size) rarely changes the sampled token.

    Args:
        probabilities: (V,).
        noise: (V,) from `exponential_noise`.
    """
    return sample_tokens(probabilities[None], noise[None])[0]


def sample_tokens(probabilities: Tensor, noise: Tensor) -> list[int]:
    """Sample one token per row as `sample_token` does: probabilities and noise (B, V) -> B ids."""
    return (probabilities / noise).argmax(dim=-1).tolist()


def ranked(logits: Tensor, n: int) -> list[tuple[int, float]]:
    """Return the n likeliest tokens and their probabilities over the whole vocabulary, at temperature 1.

    Args:
        logits: (V,) of one position.
        n: number of tokens; if it is at least V, all tokens are returned.
    """
    all_probabilities = logits.detach().to(device="cpu").to(torch.float64).softmax(dim=-1)  # (V,)
    ordered, ids = all_probabilities.sort(descending=True, stable=True)
    return list(zip(ids[:n].tolist(), ordered[:n].tolist(), strict=True))
