"""Reference function and test cases for `beam_search`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


@dataclass(frozen=True)
class ScoredTokens:
    """Tokens and the sum of their log-probabilities."""

    tokens: tuple[int, ...]
    total: float

    def score(self, alpha: float) -> float:
        """Return the length-normalized score for ranking finished hypotheses (Wu et al. 2016, equation 14)."""
        return float(self.total / ((5 + len(self.tokens)) / 6) ** alpha)


def beam_search(table: Array, bos: int, eos: int, beams: int, most: int, alpha: float) -> list[tuple[list[int], float]]:
    """Return the best (tokens, score), at most `beams` of them; `sorted` is stable, so ties keep their order."""
    running = [ScoredTokens((), 0.0)]
    finished = list[ScoredTokens]()
    while running and most > 0:
        extensions = [
            ScoredTokens((*hypothesis.tokens, token), hypothesis.total + float(step))
            for hypothesis in running
            for token, step in enumerate(table[hypothesis.tokens[-1] if hypothesis.tokens else bos])
            if np.isfinite(step)
        ]
        selected = sorted(extensions, key=lambda hypothesis: hypothesis.total, reverse=True)[:beams]
        finished += [hypothesis for hypothesis in selected if hypothesis.tokens[-1] == eos]
        running = [hypothesis for hypothesis in selected if hypothesis.tokens[-1] != eos]
        most -= 1
    best = sorted(finished + running, key=lambda hypothesis: hypothesis.score(alpha), reverse=True)[:beams]
    return [(list(hypothesis.tokens), hypothesis.score(alpha)) for hypothesis in best]


def everything(table: Array, bos: int, eos: int, most: int, alpha: float) -> list[tuple[list[int], float]]:
    """Return every text with its score, best first, like a beam search with an unlimited number of beams."""
    hypotheses: list[ScoredTokens] = []

    def grow(hypothesis: ScoredTokens) -> None:
        if len(hypothesis.tokens) == most or (hypothesis.tokens and hypothesis.tokens[-1] == eos):
            hypotheses.append(hypothesis)
            return
        for token, step in enumerate(table[hypothesis.tokens[-1] if hypothesis.tokens else bos]):
            grow(ScoredTokens((*hypothesis.tokens, token), hypothesis.total + float(step)))

    grow(ScoredTokens((), 0.0))
    return [
        (list(hypothesis.tokens), hypothesis.score(alpha))
        for hypothesis in sorted(hypotheses, key=lambda hypothesis: -hypothesis.score(alpha))
    ]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one or many beams, several penalties, ties, impossible tokens and one step."""
    path = _garden_path()
    yield call(
        "beam_search", path, 0, 3, 2, 2, 0.0, note="where the most likely first token leads to less likely texts"
    )
    yield call("beam_search", path, 0, 3, 1, 2, 0.0, note="where there is one beam, as in greedy search")
    yield call("beam_search", path, 0, 3, 4, 1, 0.6, note="where only one step is allowed")
    for V, beams, most, alpha in [(5, 2, 4, 0.6), (7, 3, 6, 0.6), (4, 5, 5, 1.0), (11, 4, 3, 0.0), (6, 1, 7, 0.6)]:
        note = f"where the probabilities of {V} tokens are random, with {counted(beams, 'beams')} and alpha {alpha}"
        yield call("beam_search", _random_table(rng, V), 0, 1, beams, most, alpha, note=note)
    for alpha in (0.0, 0.6, 2.0):
        note = f"where there are more beams than texts, and alpha is {alpha}"
        yield call("beam_search", _random_table(rng, 3), 0, 2, 27, 3, alpha, note=note)
    likely_end = _random_table(rng, 5)
    likely_end[:, 1] += 2.0
    yield call(
        "beam_search", _normalized(likely_end), 0, 1, 3, 6, 0.6, note="where the end token is likely at each step"
    )
    rare_end = _random_table(rng, 5)
    rare_end[:, 1] -= 6.0
    yield call("beam_search", _normalized(rare_end), 0, 1, 3, 4, 0.6, note="where the end token is very unlikely")
    yield call("beam_search", np.full((4, 4), -2.0), 0, 3, 3, 3, 0.0, note="where all probabilities are equal")
    blocked = _random_table(rng, 4)
    blocked[:, 0] = -np.inf
    blocked[2, 1] = -np.inf
    yield call("beam_search", blocked, 0, 3, 9, 3, 0.6, note="where some tokens cannot follow others")
    ends = np.full((3, 3), -np.inf)
    ends[:, 2] = 0.0
    yield call("beam_search", ends, 0, 2, 3, 5, 0.6, note="where the end token always comes first")
    wide = _random_table(rng, 6)

    def best_scores(functions: Functions) -> list[float]:
        return [float(functions.beam_search(wide, 0, 1, beams, 4, 0.6)[0][1]) for beams in (1, 2, 3, 5, 8)]

    yield Case(best_scores, "where the best scores of 1, 2, 3, 5 and 8 beams are compared", "beam_search")


def _garden_path() -> Array:
    """Return a table in which token 1 is the most likely first token, but the best text starts with token 2."""
    probabilities = [[0, 0.6, 0.4, 0], [0, 0.35, 0.25, 0.4], [0, 0.05, 0.05, 0.9], [0, 0, 0, 1]]
    with np.errstate(divide="ignore"):
        return _normalized(np.log(np.array(probabilities)))


def _random_table(rng: np.random.Generator, V: int) -> Array:
    return _normalized(rng.normal(size=(V, V)) * 1.5)


def _normalized(table: Array) -> Array:
    """Normalize the rows, rounded to multiples of 2^-20 so that sums are exact and equal sums are ties."""
    rows: Array = np.round((table - np.logaddexp.reduce(table, axis=1, keepdims=True)) * 2**20) / 2**20
    return rows


def picture() -> Picture:
    """Draw a table in which greedy search fails, and the texts found with one and two beams."""
    path = _garden_path()
    names = ["begin", "a", "b", "end"]
    results = {beams: beam_search(path, 0, 3, beams, 2, 0.0)[0] for beams in (1, 2)}
    rows = [
        f"{beams} beam{'s'[: beams - 1]}: {' '.join(names[token] for token in results[beams][0])}" for beams in results
    ]
    return Picture(
        [
            Panel("probability of the next token", np.exp(path), names, names),
            Panel("probability of the text found", [[np.exp(score)] for _, score in results.values()], rows),
        ],
        caption="Greedy search takes a (0.6), and then the best text has probability 0.6 x 0.4 = 0.24. Two beams also "
        "keep b, and b end is more likely: 0.4 x 0.9 = 0.36.",
    )
