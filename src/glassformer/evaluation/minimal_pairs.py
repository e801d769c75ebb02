"""Minimal pairs: does a language model prefer the sentence that follows a rule to the one that breaks it?

As in BLiMP (Warstadt et al. 2020): a pair is right if log P(good) > log P(bad), summed over tokens and not divided by
their number; a tie counts a half, so that chance is 50 %. Only tokens from `scored_from` on count, in either text: from
the beginning (0), from the first word that differs (Linzen et al. 2016), or after the difference (the partial score of
Trinh and Le 2018). Twins are pairs with almost the same words and different answers; chance is 25 % for getting both of
two right, and a heuristic that always gives the same answer gets 0 %.

The model is passed as a function, so this module does not depend on tokenizers, batches or devices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from glassformer.base.errors import GlassError
from glassformer.corpora import MinimalPair
from glassformer.evaluation.resampling import wilson

TokenScores = list[tuple[int, float]]
"""For each token of a text in order: one past the last character it touches, and ln P(token | what comes before)."""

TokenLogProbabilities = Callable[[Sequence[str]], Sequence[TokenScores]]
"""The model: scores of the tokens of each text. For a model that sees both sides (a masked one) they are
pseudo-log-likelihoods (Salazar et al. 2020); whoever shows the results should say so."""

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class Share:
    """The share of some pairs, or groups of twins, that are right.

    Attributes:
        right: ties count a half.
        count: how many there are.
    """

    right: float
    count: int

    @property
    def share(self) -> float:
        """Return the share, from 0 to 1."""
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, by Wilson's formula; the pairs are taken as independent."""
        return wilson(self.right, self.count)

    def facts(self) -> dict[str, Any]:
        """Return the share as JSON."""
        return {"share": self.share, "ci95": list(self.interval), "right": self.right, "count": self.count}


@dataclass(frozen=True)
class PairResults:
    """Results of a model on minimal pairs.

    Attributes:
        overall: of all pairs.
        by_cell: of the pairs of each cell. A rule such as "agree with the last noun" is right in all of some cells and
            in none of the others, which `overall` does not show.
        by_attractors: of the pairs with so many nouns in between that mislead.
        twins: of groups of pairs that belong together, those with every pair right; None where no two do.
        twins_chance: the share of such groups that guessing gets right.
        mean_log_ratio: mean of ln P(good) - ln P(bad), in nats: above 0 where good is more likely.
    """

    overall: Share
    by_cell: dict[str, Share]
    by_attractors: dict[int, Share]
    twins: Share | None
    twins_chance: float
    mean_log_ratio: float


def log_ratios(pairs: Sequence[MinimalPair], model: TokenLogProbabilities) -> list[float]:
    """ln P(good) - ln P(bad) of each pair, over the tokens that count; exactly 0 for a tie.

    Raises:
        GlassError: the model's scores do not fit its texts.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    scores = dict(zip(texts, model(texts), strict=True))
    for text, tokens in scores.items():
        _check(text, tokens)
    ratios = []
    for pair in pairs:
        good = scores[pair.good]
        bad = scores[pair.bad]
        start = _start(pair, good, bad)
        for_good = _from(good, start)
        for_bad = _from(bad, start)
        # Two impossible texts are a tie; their difference would be no number.
        ratios.append(0.0 if for_good == for_bad else for_good - for_bad)
    return ratios


def results_of(pairs: Sequence[MinimalPair], ratios: Sequence[float]) -> PairResults:
    """Results from one number for each pair: above 0 if it finds `good` better, 0 for a tie, otherwise below.

    A rule of thumb can be measured with it too.

    Raises:
        GlassError: there are no pairs, not as many ratios, or one is not a number.
    """
    if not pairs or len(pairs) != len(ratios):
        raise GlassError(
            f"there are {len(pairs):,} pairs and {len(ratios):,} ratios",
            "Give one ratio for each of one or more pairs.",
        )
    if any(math.isnan(ratio) for ratio in ratios):
        raise GlassError("a log-ratio is not a number", "Look for a loss that is not finite in the model's training.")
    right = [_score(ratio) for ratio in ratios]
    groups: dict[int, list[float]] = defaultdict(list)
    for pair, score in zip(pairs, right, strict=True):
        groups[pair.twin].append(score)
    twins = [scores for scores in groups.values() if len(scores) > 1]
    return PairResults(
        overall=Share(sum(right), len(right)),
        by_cell=_shares([pair.cell for pair in pairs], right),
        by_attractors=_shares([pair.attractors for pair in pairs], right),
        # A product: a model that ties everywhere gets what guessing gets.
        twins=Share(sum(map(math.prod, twins)), len(twins)) if twins else None,
        twins_chance=sum(0.5 ** len(scores) for scores in twins) / len(twins) if twins else 0.25,
        mean_log_ratio=sum(ratios) / len(ratios),
    )


def _score(ratio: float) -> float:
    if ratio > 0:
        return 1.0
    return 0.5 if ratio == 0 else 0.0


def _shares(groups: Sequence[Group], right: Sequence[float]) -> dict[Group, Share]:
    """Return the share of correct pairs of each group, in sorted order of the groups."""
    scores: dict[Group, list[float]] = defaultdict(list)
    for group, score in zip(groups, right, strict=True):
        scores[group].append(score)
    return {group: Share(sum(scores[group]), len(scores[group])) for group in sorted(scores)}  # type: ignore[type-var]


def _start(pair: MinimalPair, good: TokenScores, bad: TokenScores) -> int:
    """Tokens that end after this character count.

    Where both texts are the same up to `scored_from`, but a token of one reaches across it and not in the other, the
    count would begin at different characters. So it begins where both have a boundary.
    """
    if pair.good[: pair.scored_from] != pair.bad[: pair.scored_from]:
        return pair.scored_from
    boundaries = {0} | ({end for end, _ in good} & {end for end, _ in bad})
    return max(boundary for boundary in boundaries if boundary <= pair.scored_from)


def _from(tokens: TokenScores, start: int) -> float:
    return math.fsum(score for end, score in tokens if end > start)


def _check(text: str, tokens: TokenScores) -> None:
    """Every character is scored, once: a text that did not fit the context must not look likely."""
    ends = [end for end, _ in tokens]
    if ends != sorted(ends) or max(ends, default=0) != len(text):
        raise GlassError(
            f"the {len(text)} characters of {text[:60]!r} are scored up to {ends[-1] if ends else 0}",
            "Use texts that fit the model's context, and tokens in their order.",
        )
