"""Probes by minimal pairs: agreement, coreference, brackets, and pairs of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from glassformer.base.wording import counted
from glassformer.corpora import MinimalPair, find_minimal_pair_corpus
from glassformer.evaluation.minimal_pairs import PairResults, Share, TokenScores, log_ratios, results_of
from glassformer.evaluation.probes.heuristics import RULES
from glassformer.evaluation.probes.result import Group, ProbeResult, by_number
from glassformer.evaluation.probes.row_probabilities import Readable, as_written, checked_row, scored, token_scores
from glassformer.evaluation.probes.token_counts import Known
from glassformer.text.tokenizers import Tokenizer

ABOUT = {
    "agreement": "does the verb agree with its subject, whatever nouns stand between; combinations never trained on",
    "coreference": "which noun suits the adjective, counted behind the noun; combinations never trained on",
    "brackets": "does the bracket close the right one, by brackets in between",
}


def corpus_pairs(name: str, size: int, seed: int) -> list[MinimalPair]:
    """Minimal pairs of a generated corpus."""
    return list(islice(find_minimal_pair_corpus(name).minimal_pairs(size, seed), size))


def probe_pairs(
    name: str, about: str, pairs: Sequence[MinimalPair], model: Readable, known: Known | None
) -> ProbeResult:
    """Probe a run with minimal pairs.

    Args:
        name: of the probe; that of a corpus has rules of its own.
        about: what is asked, in words.
        pairs: at least one.
        model: the run.
        known: its training text; None where it is not at hand, and then there are no rules of frequency.

    Raises:
        GlassError: a text is longer than the run reads.
    """
    for text in (text for pair in pairs for text in (pair.good, pair.bad)):
        checked_row(model, text)
    ours = [_as_written(model.tokenizer, pair) for pair in pairs]
    ratios = log_ratios(ours, lambda texts: token_scores(model, texts))
    rules = {rule: [judge(pair) for pair in pairs] for rule, judge in RULES.get(name, {}).items()}
    if known is not None:
        rules["unigram"] = log_ratios(ours, lambda texts: _by_rule(model.tokenizer, texts, known.unigram))
        rules["bigram"] = log_ratios(
            ours,
            lambda texts: _by_rule(model.tokenizer, texts, lambda rows: known.bigram(rows, model.tokenizer.end_id)),
        )
    groups = pair_groups(pairs, ratios, rules)
    mean = float(np.mean(ratios))
    figures = {"mean log-ratio, good over bad, in nats": mean}
    return ProbeResult(name, about, groups, figures, list(_unwritten(model, pairs, ours)))


def pair_groups(
    pairs: Sequence[MinimalPair], ratios: Sequence[float], rules: Mapping[str, Sequence[float]]
) -> list[Group]:
    """List all pairs, each cell, each cell by attractors if there are any, and twins; the rules on the same."""
    finer = [replace(pair, cell=_finer(pair)) for pair in pairs]
    named = {rule: (results_of(pairs, given), results_of(finer, given)) for rule, given in rules.items()}
    ours = (results_of(pairs, ratios), results_of(finer, ratios))
    shares = {rule: _shares(*both) for rule, both in named.items()}
    return [
        Group(
            name,
            share,
            ours[0].twins_chance if name.startswith("twins") else 0.5,
            {rule: found[name].share for rule, found in shares.items()},
        )
        for name, share in _shares(*ours).items()
    ]


def _finer(pair: MinimalPair) -> str:
    return f"{pair.cell}, {counted(pair.attractors, 'attractors')}"


def _shares(coarse: PairResults, fine: PairResults) -> dict[str, Share]:
    """Every share of these results by its name."""
    shares = {"all pairs": coarse.overall}
    if len(coarse.by_cell) > 1 or "" not in coarse.by_cell:
        shares |= {cell: coarse.by_cell[cell] for cell in sorted(coarse.by_cell, key=by_number)}
    if set(coarse.by_attractors) != {0}:
        misled = [cell for cell in sorted(fine.by_cell, key=by_number) if not cell.endswith(", 0 attractors")]
        shares |= {cell: fine.by_cell[cell] for cell in misled}
    return shares | ({"twins, all right": coarse.twins} if coarse.twins else {})


def _as_written(tokenizer: Tokenizer, pair: MinimalPair) -> MinimalPair:
    """The pair as the run's tokens spell it, so that each token has its place in the text."""
    start = len(as_written(tokenizer, pair.good[: pair.scored_from])) if pair.scored_from else 0
    good = as_written(tokenizer, pair.good)
    bad = as_written(tokenizer, pair.bad)
    return replace(pair, good=good, bad=bad, scored_from=start)


def _by_rule(
    tokenizer: Tokenizer, texts: Sequence[str], rule: Callable[[list[list[int]]], list[npt.NDArray[np.float64]]]
) -> list[TokenScores]:
    rows = [tokenizer.encode(text) for text in texts]
    return scored(tokenizer, rows, rule(rows))


def _unwritten(model: Readable, pairs: Sequence[MinimalPair], ours: Sequence[MinimalPair]) -> Iterator[str]:
    """A word on pairs that the run's tokens cannot tell apart."""
    same = sum(pair.good == pair.bad for pair in ours)
    if same:
        yield f"{counted(same, 'pairs are', 'pair is')} the same to this run's vocabulary: ties, which count a half"
