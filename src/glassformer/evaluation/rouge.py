"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004) for any script.

Words are lower-cased sequences of letters, marks and digits, so that a Bangla word keeps its vowel signs; all other
characters separate words, except joiners (U+200C and U+200D) inside a word. On ASCII text, words and scores equal those
of the package rouge-score without stemming. Scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer,
Burmese and others) would need a dictionary to find words; in these, each ideograph, kana or letter with its marks
counts as one word, and scores are comparable only within the same script. Text is normalized to NFC before the
comparison.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted

UNSPACED = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
)
"""Scripts without spaces between words."""

_ALONE = "".join(rf"\p{{{script}}}" for script in UNSPACED)
_WORDY = r"[\p{L}\p{M}\p{N}]"
_INSIDE = rf"[{_WORDY}--[{_ALONE}]]"
# The joiners U+200C and U+200D belong to the spelling of Bangla, Persian and other words, but only inside a word.
WORDS = regex.compile(
    rf"(?V1)[{_WORDY}&&[{_ALONE}]](?:[\u200c\u200d]*\p{{M}})*|{_INSIDE}+(?:[\u200c\u200d]+{_INSIDE}+)*"
)


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision, recall and F1 of a hypothesis, each from 0 to 1.

    Attributes:
        precision: fraction of the hypothesis that is in the reference.
        recall: fraction of the reference that is in the hypothesis.
        f: harmonic mean of precision and recall.
    """

    precision: float
    recall: float
    f: float


@dataclass(frozen=True)
class RougeScores:
    """ROUGE scores of one text: by unigrams, by bigrams, and by the longest common subsequence of words."""

    rouge1: PrecisionRecall
    rouge2: PrecisionRecall
    rougeL: PrecisionRecall  # noqa: N815 - the metric's usual name


def words(text: str) -> list[str]:
    """Split a text into the words that ROUGE compares.

    >>> words("Don't ask: আমি বাংলায় গান গাই।")
    ['don', 't', 'ask', 'আমি', 'বাংলায়', 'গান', 'গাই']
    >>> words("我爱北京 2008")
    ['我', '爱', '北', '京', '2008']
    """
    return WORDS.findall(unicodedata.normalize("NFC", text.lower()))


def rouge(hypothesis: str, reference: str) -> RougeScores:
    """Return the ROUGE scores of one text; a score is 0 if either text has no words (ROUGE-2: fewer than two)."""
    hypothesis_words = words(hypothesis)
    reference_words = words(reference)
    common = common_subsequence(hypothesis_words, reference_words)
    return RougeScores(
        rouge1=_by_ngrams(hypothesis_words, reference_words, 1),
        rouge2=_by_ngrams(hypothesis_words, reference_words, 2),
        rougeL=_precision_recall(common, len(hypothesis_words), len(reference_words)),
    )


def rouge_of_each(hypotheses: Sequence[str], references: Sequence[str]) -> list[RougeScores]:
    """Return the ROUGE scores of each text, for intervals and paired tests.

    Raises:
        GlassError: the numbers of texts and references differ, or there are no texts.
    """
    if len(hypotheses) != len(references):
        raise GlassError(
            f"got {counted(len(hypotheses), 'texts')} to score, but {counted(len(references), 'references')}",
            "Give one reference for each text.",
        )
    if not references:
        raise GlassError("there are no texts to score", "Evaluate on a file that is not empty.")
    return [rouge(hypothesis, reference) for hypothesis, reference in zip(hypotheses, references, strict=True)]


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, in O(n m / word size).

    Neighbouring entries in a row of the dynamic-programming table differ by 0 or 1, so a row fits into the bits of one
    integer, and the next row takes one addition (Hyyrö 2004): bit j of `row` is 0 where the table grows at `second[j]`.
    """
    positions: dict[str, int] = {}
    for j, word in enumerate(second):
        positions[word] = positions.get(word, 0) | 1 << j
    everything = (1 << len(second)) - 1
    row = everything
    for word in first:
        matched = row & positions.get(word, 0)
        row = (row + matched) | (row - matched)
    return len(second) - (row & everything).bit_count()


def _by_ngrams(hypothesis: list[str], reference: list[str], n: int) -> PrecisionRecall:
    """Compare n-grams; a repeated n-gram matches as often as it occurs in the text where it is rarer."""
    hypothesis_ngrams = _ngrams(hypothesis, n)
    reference_ngrams = _ngrams(reference, n)
    return _precision_recall(
        (hypothesis_ngrams & reference_ngrams).total(), hypothesis_ngrams.total(), reference_ngrams.total()
    )


def _ngrams(sequence: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(sequence[start:] for start in range(n)), strict=False))


def _precision_recall(common: int, hypothesis: int, reference: int) -> PrecisionRecall:
    if not common:
        return PrecisionRecall(0.0, 0.0, 0.0)
    precision = common / hypothesis
    recall = common / reference
    return PrecisionRecall(precision, recall, 2 * precision * recall / (precision + recall))
