"""`recall`: key-value pairs, then every key again with its value (multi-query associative recall).

In "KaRzQa|RzQaKa", capital letters are keys and small letters are values. After "|", the same pairs follow in random
order. There, a model that recalls all pairs has a loss only on the order of the keys, not on their values (MQAR: Arora
et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models").
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import TEXT_TASKS, below, generator
from glassformer.corpora.strings import ALPHABET

KEYS = ALPHABET.upper()
LINE = re.compile(r"((?:[A-Z][a-z])+)\|((?:[A-Z][a-z])+)")


@dataclass(frozen=True)
class Recall:
    """The corpus `recall`: `fewest` to `most` pairs with distinct keys, all queried in random order."""

    fewest: int = 2
    most: int = 8
    name: str = "recall"
    summary: str = "key-value pairs, then each key again with its value: KaRzQa|RzQaKa"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with characters as tokens and one line per row."""
        return {
            "tokenizer.kind": "characters",
            "data.windows": "documents",
            "model.context": str(4 * self.most + 2),
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one line per document."""
        for index in range(size):
            numbers = generator(seed, index)
            pairs = self.fewest + below(numbers, self.most - self.fewest + 1)
            keys = list(KEYS)
            key_values: list[str] = []
            for _ in range(pairs):
                key = keys.pop(below(numbers, len(keys)))
                key_values.append(key + ALPHABET[below(numbers, len(ALPHABET))])
            remaining = list(key_values)
            queries = [remaining.pop(below(numbers, len(remaining))) for _ in range(pairs)]
            yield f"{''.join(key_values)}|{''.join(queries)}"

    def entropy(self) -> float:
        """Return the entropy in nats per document.

        It is the sum of the entropies of the number of pairs, of the keys in order, of the values, and of the order of
        the queries.
        """
        sizes = range(self.fewest, self.most + 1)
        return math.log(len(sizes)) + sum(_negative_log_probability(pairs) for pairs in sizes) / len(sizes)

    def log_probability(self, document: str) -> float:
        """Return ln p of a document; minus infinity for text outside the corpus, such as one with a wrong value."""
        match = LINE.fullmatch(document)
        if not match:
            return -math.inf
        key_values, queries = (re.findall("..", part) for part in match.groups())
        pairs = len(key_values)
        distinct = len({pair[0] for pair in key_values}) == pairs
        if not distinct or not self.fewest <= pairs <= self.most or sorted(key_values) != sorted(queries):
            return -math.inf
        return -math.log(self.most - self.fewest + 1) - _negative_log_probability(pairs)

    def mean_characters(self) -> float:
        """Return the mean length of a document: four characters for each pair, plus one for "|"."""
        return 2.0 * (self.fewest + self.most) + 1


def _negative_log_probability(pairs: int) -> float:
    """Return -ln p of a line given its number of pairs; distinct keys, values and the order of queries are uniform."""
    keys = math.lgamma(len(KEYS) + 1) - math.lgamma(len(KEYS) - pairs + 1)
    return keys + pairs * math.log(len(ALPHABET)) + math.lgamma(pairs + 1)
