"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004) for any script: how much of a reference text another one holds.

Words are lower-cased runs of letters, marks and digits, so that a Bangla word keeps its vowel signs; everything else
separates. On ASCII text these are the words of the package rouge-score without stemming, and so are the scores.
Scripts that put no spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese and others) have no words to be
found without a dictionary: there, each ideograph, kana or letter counts as a word of its own, with its marks. Such
scores compare with each other only. Texts that Unicode calls the same (NFC) are the same.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from glassformer.base.errors import GlassError

UNSPACED = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
)
"""Scripts that are written without spaces between words."""

_ALONE = "".join(rf"\p{{{script}}}" for script in UNSPACED)
_WORDY = r"[\p{L}\p{M}\p{N}]"
_INSIDE = rf"[{_WORDY}--[{_ALONE}]]"
# The joiners U+200C and U+200D belong to the spelling of Bangla, Persian and other words, but only inside them.
WORDS = regex.compile(
    rf"(?V1)[{_WORDY}&&[{_ALONE}]](?:[\u200c\u200d]*\p{{M}})*|{_INSIDE}+(?:[\u200c\u200d]+{_INSIDE}+)*"
)


@dataclass(frozen=True)
class PrecisionRecall:
    """The overlap of two texts, from 0 to 1.

    Attributes:
        precision: share of the hypothesis that is in the reference.
        recall: share of the reference that is in the hypothesis.
        f: their harmonic mean.
    """

    precision: float
    recall: float
    f: float


@dataclass(frozen=True)
class RougeScores:
    """By single words, by pairs of neighbours, and by the longest common subsequence of words."""

    rouge1: PrecisionRecall
    rouge2: PrecisionRecall
    rougeL: PrecisionRecall  # noqa: N815 - its name everywhere


def words(text: str) -> list[str]:
    """The words that are compared.

    >>> words("Don't ask: আমি বাংলায় গান গাই।")
    ['don', 't', 'ask', 'আমি', 'বাংলায়', 'গান', 'গাই']
    >>> words("我爱北京 2008")
    ['我', '爱', '北', '京', '2008']
    """
    return WORDS.findall(unicodedata.normalize("NFC", text.lower()))


def rouge(hypothesis: str, reference: str) -> RougeScores:
    """Scores of one text. Where either has no words (or no two, for pairs), the score is 0."""
    said = words(hypothesis)
    wanted = words(reference)
    common = common_subsequence(said, wanted)
    return RougeScores(_by_runs(said, wanted, 1), _by_runs(said, wanted, 2), _overlap(common, len(said), len(wanted)))


def rouge_of_each(hypotheses: Sequence[str], references: Sequence[str]) -> list[RougeScores]:
    """Scores of each text, for intervals and paired tests.

    Raises:
        GlassError: not as many texts as references, or none at all.
    """
    if len(hypotheses) != len(references):
        raise GlassError(
            f"there are {len(hypotheses):,} texts to score, but {len(references):,} references",
            "Give one reference for each text.",
        )
    if not references:
        raise GlassError("there are no texts to score", "Measure on a file that is not empty.")
    return [rouge(hypothesis, reference) for hypothesis, reference in zip(hypotheses, references, strict=True)]


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence, in O(n m / word size).

    One row of the usual table holds steps of 0 or 1, so it fits into the bits of one integer, and the next row takes
    one addition (Hyyrö 2004): bit j of `row` is 0 where the table grows at `second[j]`.
    """
    places: dict[str, int] = {}
    for j, word in enumerate(second):
        places[word] = places.get(word, 0) | 1 << j
    everything = (1 << len(second)) - 1
    row = everything
    for word in first:
        matched = row & places.get(word, 0)
        row = (row + matched) | (row - matched)
    return len(second) - (row & everything).bit_count()


def _by_runs(said: list[str], wanted: list[str], n: int) -> PrecisionRecall:
    """By runs of n words; one that is repeated counts as often as it stands in both."""
    in_said = _runs(said, n)
    in_wanted = _runs(wanted, n)
    return _overlap((in_said & in_wanted).total(), in_said.total(), in_wanted.total())


def _runs(sequence: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(sequence[start:] for start in range(n)), strict=False))


def _overlap(common: int, said: int, wanted: int) -> PrecisionRecall:
    if not common:
        return PrecisionRecall(0.0, 0.0, 0.0)
    precision = common / said
    recall = common / wanted
    return PrecisionRecall(precision, recall, 2 * precision * recall / (precision + recall))
