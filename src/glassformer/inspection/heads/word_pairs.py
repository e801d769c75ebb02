"""Learn which source token gives each target token from parallel text: IBM Model 1 (Brown et al. 1993, section 4.1).

The probabilities t(target | source) do not depend on positions, so they suit any order of the target, such as a
reversed copy of the source.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassformer.inspection.heads.attention_arrays import Bools, Floats, Ids
from glassformer.text.record_store import RecordStore

MOST_LINKS = 1_000_000
"""Maximum number of (source token, target token) pairs in the records that are read; the first records are used."""
ITERATIONS = 8
"""Iterations of expectation maximization."""
SHORTEST_SOURCE = 4
"""Minimum number of source text tokens of a row on which alignment is measured."""
NULL = -1
"""Source token of target tokens that translate no token of the source."""


class WordPairs:
    """Translation probabilities of tokens.

    Args:
        links: (n, 2) distinct pairs (source token, target token), sorted; the source token may be `NULL`.
        probabilities: (n) t(target token | source token).
    """

    def __init__(self, links: Ids, probabilities: Floats) -> None:
        self._table = dict(zip(map(tuple, links.tolist()), probabilities.tolist(), strict=True))

    def partners(self, source: Ids, predicted: Ids) -> Bools:
        """Return a mask (T, S) of the source tokens that give each predicted target token.

        They are the tokens with the highest t(target | source), all of them if a token repeats. A row is empty if
        `NULL` has a higher probability, or if no pair of the row was in the text.

        Args:
            source: (S) tokens of the source.
            predicted: (T) target tokens.
        """
        t = np.array(
            [[self._table.get((s, y), 0.0) for s in [*source.tolist(), NULL]] for y in predicted.tolist()]
        ).reshape(len(predicted), len(source) + 1)  # (T, S + 1)
        best = t.max(axis=1, keepdims=True)  # (T, 1)
        partners: Bools = (t == best)[:, :-1] & (best > 0) & (best > t[:, -1:])
        return partners


def learned_pairs(records: RecordStore, source_special: frozenset[int], special: frozenset[int]) -> WordPairs:
    """Learn translation probabilities from the pairs of a run's training text.

    Args:
        records: pairs.
        source_special, special: ids of special tokens of the source and of the target, which have no partner.
    """
    pairs: list[tuple[Ids, Ids]] = []
    n_links = 0
    for number in range(len(records)):
        source, target = _text_ids(records, number, source_special, special)
        n_links += (len(source) + 1) * len(target)
        if n_links > MOST_LINKS:
            break
        pairs.append((np.append(source, NULL), target))
    every_link = np.concatenate(  # (links, 2)
        [np.zeros((0, 2), dtype=np.int64)]
        + [np.stack([np.tile(source, len(target)), np.repeat(target, len(source))], axis=1) for source, target in pairs]
    )
    widths = [len(source) for source, target in pairs for _ in target]
    target_of_link = np.repeat(np.arange(len(widths)), widths)  # (links): number of the target token
    links, link_index = np.unique(every_link, axis=0, return_inverse=True)  # (n, 2), (links)
    sources, source_index = np.unique(links[:, 0], return_inverse=True)  # (distinct source tokens), (n)
    t = np.ones(len(links))
    for _ in range(ITERATIONS):
        scores = t[link_index]  # (links)
        posterior = scores / np.bincount(target_of_link, scores, len(widths))[target_of_link]  # (links)
        counts = np.bincount(link_index, posterior, len(links))  # (n)
        t = counts / np.bincount(source_index, counts, len(sources))[source_index]  # (n)
    return WordPairs(links, t)


def _text_ids(
    records: RecordStore, number: int, source_special: frozenset[int], special: frozenset[int]
) -> tuple[Ids, Ids]:
    """Return the source and target ids of a record, without special tokens."""
    ids = []
    for store, unwanted in ((records.source, source_special), (records.target, special)):
        ends = store.document_ends
        tokens = np.asarray(store.tokens[int(ends[number - 1]) if number else 0 : int(ends[number])], dtype=np.int64)
        ids.append(tokens[~np.isin(tokens, list(unwanted))])
    return ids[0], ids[1]


def aligned_keys(pairs: WordPairs, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Bools]:
    """Return, for each row of a probe, the source tokens (T, S) of the target token that each query predicts.

    Query i of the decoder reads target token i and predicts token i + 1; the last query has no partner. Rows with fewer
    than `SHORTEST_SOURCE` source tokens have none either, because a guess among them would often be right.
    """
    patterns = []
    for source, target in zip(sources, targets, strict=True):
        pattern = np.zeros((len(target), len(source)), dtype=np.bool_)  # (T, S)
        if len(source) > SHORTEST_SOURCE:  # the end token is not a text token
            pattern[:-1] = pairs.partners(source, target[1:])
        patterns.append(pattern)
    return patterns
