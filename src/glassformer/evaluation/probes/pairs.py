"""Probes that use minimal pairs: agreement, coreference, pronouns-bn, brackets, and user-provided pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.corpora import MinimalPair, find_minimal_pair_corpus
from glassformer.evaluation.minimal_pairs import Proportion, TokenScores, log_ratios, results_of
from glassformer.evaluation.probes.heuristics import HEURISTICS
from glassformer.evaluation.probes.result import Group, ProbeResult, by_number
from glassformer.evaluation.probes.row_probabilities import ScorableModel, as_written, checked_row, scored, token_scores
from glassformer.evaluation.probes.token_counts import TokenCounts
from glassformer.text.tokenizers import Tokenizer

ABOUT = {
    "agreement": "does the verb agree with its subject across other nouns, in combinations absent from the corpus",
    "coreference": "which noun fits the adjective, in combinations absent from the corpus; "
    "only the text after the noun is scored",
    "pronouns-bn": "does the Bangla verb agree with its subject, one of two pronouns, in combinations absent from "
    "the corpus",
    "brackets": "does the closing bracket match, by the number of brackets in between",
}


def corpus_pairs(name: str, size: int, seed: int) -> list[MinimalPair]:
    """Return `size` minimal pairs of a generated corpus."""
    return list(islice(find_minimal_pair_corpus(name).minimal_pairs(size, seed), size))


def require_differences(tokenizer: Tokenizer, pairs: Sequence[MinimalPair]) -> None:
    """Check that the two texts of at least one pair differ in the tokens of a run.

    Raises:
        GlassError: the run cannot tell the texts of any pair apart.
    """
    if all(tokenizer.encode(pair.good) == tokenizer.encode(pair.bad) for pair in pairs):
        raise GlassError(
            f"both texts of each pair, such as {pairs[0].good!r}, have the same tokens in this run's vocabulary",
            "Probe a run whose vocabulary has the words of the pairs.",
        )


def probe_pairs(
    name: str, about: str, pairs: Sequence[MinimalPair], model: ScorableModel, token_counts: TokenCounts | None
) -> ProbeResult:
    """Probe a run with minimal pairs.

    Args:
        name: name of the probe; if it is the name of a corpus, the heuristics for that corpus are added.
        about: description of the probe, for the report.
        pairs: minimal pairs, at least one.
        model: the run.
        token_counts: counts of the run's training text, for the unigram and bigram heuristics; None if not available.

    Raises:
        GlassError: a text has no tokens, or is longer than the context of the run.
    """
    for text in (text for pair in pairs for text in (pair.good, pair.bad)):
        checked_row(model, text)
    decoded_pairs = [_as_written(model.tokenizer, pair) for pair in pairs]
    ratios = log_ratios(decoded_pairs, lambda texts: token_scores(model, texts))
    rules = {rule: [heuristic(pair) for pair in pairs] for rule, heuristic in HEURISTICS.get(name, {}).items()}
    if token_counts is not None:
        rules["unigram"] = log_ratios(
            decoded_pairs, lambda texts: _heuristic_scores(model.tokenizer, texts, token_counts.unigram)
        )
        rules["bigram"] = log_ratios(
            decoded_pairs,
            lambda texts: _heuristic_scores(
                model.tokenizer, texts, lambda rows: token_counts.bigram(rows, model.tokenizer.end_id)
            ),
        )
    groups = pair_groups(pairs, ratios, rules)
    mean = float(np.mean(ratios))
    figures = {"mean log-ratio, good over bad, in nats": mean}
    return ProbeResult(name, about, groups, figures, list(_tie_notes(decoded_pairs)))


def pair_groups(
    pairs: Sequence[MinimalPair], ratios: Sequence[float], rules: Mapping[str, Sequence[float]]
) -> list[Group]:
    """Return the results of the model and the heuristics on all pairs, on each cell, and on twins.

    Cells are also divided by the number of attractors, if there are any.
    """
    groups = [
        Group(
            name,
            _proportion(pairs, ratios, members),
            0.5,
            {rule: _proportion(pairs, preferences, members).value for rule, preferences in rules.items()},
        )
        for name, members in _group_members(pairs)
    ]
    results = results_of(pairs, ratios)
    if results.twins is None:
        return groups
    rule_twins = {rule: results_of(pairs, preferences).twins for rule, preferences in rules.items()}
    twins = Group(
        "twins, all right",
        results.twins,
        results.twins_chance,
        {rule: proportion.value for rule, proportion in rule_twins.items() if proportion is not None},
    )
    return [*groups, twins]


def _group_members(pairs: Sequence[MinimalPair]) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the name of each group and the indices of its pairs."""
    yield "all pairs", range(len(pairs))
    cells: dict[str, list[int]] = defaultdict(list)
    attractor_cells: dict[str, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        cells[pair.cell].append(index)
        if pair.attractors:
            attractor_cells[f"{pair.cell}, {counted(pair.attractors, 'attractors')}"].append(index)
    if set(cells) != {""}:
        for name in sorted(cells, key=by_number):
            yield name, cells[name]
    for name in sorted(attractor_cells, key=by_number):
        yield name, attractor_cells[name]


def _proportion(pairs: Sequence[MinimalPair], ratios: Sequence[float], members: Sequence[int]) -> Proportion:
    """Return the proportion of correct pairs among those with the indices `members`."""
    return results_of([pairs[index] for index in members], [ratios[index] for index in members]).overall


def _as_written(tokenizer: Tokenizer, pair: MinimalPair) -> MinimalPair:
    """Return the pair as encoded and decoded by the run's tokenizer, so that each token has a position in the text."""
    start = len(as_written(tokenizer, pair.good[: pair.scored_from])) if pair.scored_from else 0
    good = as_written(tokenizer, pair.good)
    bad = as_written(tokenizer, pair.bad)
    return replace(pair, good=good, bad=bad, scored_from=start)


def _heuristic_scores(
    tokenizer: Tokenizer, texts: Sequence[str], rule: Callable[[list[list[int]]], list[npt.NDArray[np.float64]]]
) -> list[TokenScores]:
    rows = [tokenizer.encode(text) for text in texts]
    return scored(tokenizer, rows, rule(rows))


def _tie_notes(decoded_pairs: Sequence[MinimalPair]) -> Iterator[str]:
    """Yield a note on pairs whose two sentences are the same after encoding and decoding."""
    tie_count = sum(pair.good == pair.bad for pair in decoded_pairs)
    if tie_count:
        have = counted(tie_count, "pairs have", "pair has")
        yield f"{have} two sentences with the same tokens in this run's vocabulary; a tie counts as 0.5"
