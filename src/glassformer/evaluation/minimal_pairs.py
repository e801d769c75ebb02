"""Minimal pairs: test whether a language model prefers a sentence that follows a rule to a sentence that breaks it.

As in BLiMP (Warstadt et al. 2020), a pair is correct if log P(good) > log P(bad), summed over tokens and not divided by
their number. A tie counts as half a correct pair, so chance is 50 %. In each sentence, only tokens from `scored_from`
on are scored: from the beginning (0), from the first word that differs (Linzen et al. 2016), or after the difference
(the partial score of Trinh and Le 2018). Twins are pairs with almost the same words and different answers. A guessing
model gets both of two twins right in 25 % of cases; a heuristic that always gives the same answer gets 0 %.

The model is passed as a function, so this module does not depend on tokenizers, batches or devices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.corpora import MinimalPair
from glassformer.evaluation.resampling import wilson

TokenScores = list[tuple[int, float]]
"""For each token of a text, in order: the end of the token in the text (one past its last character), and ln P(token |
earlier tokens)."""

TokenLogProbabilities = Callable[[Sequence[str]], Sequence[TokenScores]]
"""Function that returns the token scores of each text. For a masked model, which attends to both sides, the scores are
pseudo-log-likelihoods (Salazar et al. 2020); reports should say so."""

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class Proportion:
    """The proportion of pairs, or of groups of twins, that are correct.

    Attributes:
        right: number of correct pairs or groups. A tied pair counts as 0.5, and a group as the product over its
            pairs.
        count: total number of pairs or groups.
    """

    right: float
    count: int

    @property
    def value(self) -> float:
        """Return the proportion that is correct, from 0 to 1."""
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % confidence interval, which assumes that pairs are independent."""
        return wilson(self.right, self.count)

    def facts(self) -> dict[str, Any]:
        """Return the proportion and its interval as JSON values."""
        return {"share": self.value, "ci95": list(self.interval), "right": self.right, "count": self.count}


@dataclass(frozen=True)
class PairResults:
    """Results of a model on minimal pairs.

    Attributes:
        overall: proportion of all pairs.
        by_cell: proportion in each cell. A heuristic such as "agree with the last noun" is right on all pairs of some
            cells and on no pair of other cells, which `overall` does not show.
        by_attractors: proportion by number of attractors (see `MinimalPair`).
        twins: proportion of twin groups in which every pair is correct; None if no group has two or more pairs.
        twins_chance: proportion of twin groups that a guessing model gets right; 0.25 if `twins` is None.
        mean_log_ratio: mean of ln P(good) - ln P(bad), in nats; positive if good is more likely.
    """

    overall: Proportion
    by_cell: dict[str, Proportion]
    by_attractors: dict[int, Proportion]
    twins: Proportion | None
    twins_chance: float
    mean_log_ratio: float


def log_ratios(pairs: Sequence[MinimalPair], model: TokenLogProbabilities) -> list[float]:
    """Return ln P(good) - ln P(bad) of each pair, over the scored tokens; exactly 0 for a tie.

    Raises:
        GlassError: the token scores of a text are not in order, or do not reach its end.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    scores = dict(zip(texts, model(texts), strict=True))
    for text, tokens in scores.items():
        _check_coverage(text, tokens)
    ratios = []
    for pair in pairs:
        good = scores[pair.good]
        bad = scores[pair.bad]
        start = _scoring_start(pair, good, bad)
        good_score = _score_after(good, start)
        bad_score = _score_after(bad, start)
        # Two texts with probability 0 are a tie; the difference of their logarithms would be NaN.
        ratios.append(0.0 if good_score == bad_score else good_score - bad_score)
    return ratios


def results_of(pairs: Sequence[MinimalPair], ratios: Sequence[float]) -> PairResults:
    """Compute the results from one number per pair: positive if `good` is preferred, 0 for a tie, otherwise negative.

    The numbers may be a model's log-ratios or the preferences of a heuristic.

    Raises:
        GlassError: there are no pairs, the numbers of pairs and ratios differ, or a ratio is NaN.
    """
    if not pairs or len(pairs) != len(ratios):
        raise GlassError(
            f"{counted(len(pairs), 'pairs')} and {counted(len(ratios), 'ratios')} were given",
            "Give at least one pair, and one ratio for each pair.",
        )
    if any(math.isnan(ratio) for ratio in ratios):
        raise GlassError("a log-ratio is NaN", "Check the training log of the model for a loss that is not finite.")
    outcomes = [_outcome(ratio) for ratio in ratios]
    groups: dict[int, list[float]] = defaultdict(list)
    for pair, score in zip(pairs, outcomes, strict=True):
        groups[pair.twin].append(score)
    twins = [scores for scores in groups.values() if len(scores) > 1]
    return PairResults(
        overall=Proportion(sum(outcomes), len(outcomes)),
        by_cell=_proportions([pair.cell for pair in pairs], outcomes),
        by_attractors=_proportions([pair.attractors for pair in pairs], outcomes),
        # The product of the pairs' scores, so that a model that ties everywhere scores the same as guessing.
        twins=Proportion(sum(map(math.prod, twins)), len(twins)) if twins else None,
        twins_chance=sum(0.5 ** len(scores) for scores in twins) / len(twins) if twins else 0.25,
        mean_log_ratio=sum(ratios) / len(ratios),
    )


def _outcome(ratio: float) -> float:
    if ratio > 0:
        return 1.0
    return 0.5 if ratio == 0 else 0.0


def _proportions(groups: Sequence[Group], outcomes: Sequence[float]) -> dict[Group, Proportion]:
    """Return the proportion of correct pairs in each group, sorted by group."""
    scores: dict[Group, list[float]] = defaultdict(list)
    for group, score in zip(groups, outcomes, strict=True):
        scores[group].append(score)
    return {group: Proportion(sum(scores[group]), len(scores[group])) for group in sorted(scores)}  # type: ignore[type-var]


def _scoring_start(pair: MinimalPair, good: TokenScores, bad: TokenScores) -> int:
    """Return the number of characters after which tokens are scored.

    If the texts are equal up to `scored_from`, but a token of only one text spans this position, scores would begin at
    different characters. Scoring therefore begins at the last token boundary of both texts up to `scored_from`.
    """
    if pair.good[: pair.scored_from] != pair.bad[: pair.scored_from]:
        return pair.scored_from
    boundaries = {0} | ({end for end, _ in good} & {end for end, _ in bad})
    return max(boundary for boundary in boundaries if boundary <= pair.scored_from)


def _score_after(tokens: TokenScores, start: int) -> float:
    return math.fsum(score for end, score in tokens if end > start)


def _check_coverage(text: str, tokens: TokenScores) -> None:
    """Check that the scores are in order and reach the end of the text.

    A text that was cut to fit the context would seem too likely.
    """
    ends = [end for end, _ in tokens]
    if ends != sorted(ends) or max(ends, default=0) != len(text):
        raise GlassError(
            f"{text[:60]!r} has {counted(len(text), 'characters')}, but its token scores end at "
            f"{ends[-1] if ends else 0}",
            "Use texts that fit the model's context, and give token scores in order.",
        )
