"""Translation metrics: BLEU and chrF++ by sacrebleu, with its signatures, and exact match.

The extra `metrics` installs sacrebleu, which computes corpus scores with one reference per translation. For intervals
and paired tests, `sentence_statistics` stores the counts that each sentence contributes to the corpus scores, so that a
thousand resamples take a fraction of a second.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import regex
from numpy.typing import NDArray

from glassformer.base.errors import GlassError, nearest
from glassformer.base.packages import install_command
from glassformer.base.wording import counted
from glassformer.evaluation.resampling import Indices
from glassformer.evaluation.rouge import UNSPACED

TOKENIZATIONS = ("13a", "intl", "zh", "char", "none")
"""Tokenizers of sacrebleu for BLEU that need neither another package nor a download."""

WORD_ORDER = 2  # chrF++: characters up to 6-grams, and words up to 2-grams (Popović 2017)
ORDERS = 4  # BLEU counts n-grams of 1 to 4 words

ASCII_PUNCTUATED = ("Latin", "Cyrillic", "Greek", "Georgian", "Hebrew")


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a set of translations.

    Attributes:
        bleu: BLEU, 0 to 100 (Papineni et al. 2002; Post 2018); 0 if no translation has four words.
        bleu_signature: sacrebleu's signature of the BLEU settings, to be reported with the score.
        chrf: chrF++, 0 to 100.
        chrf_signature: sacrebleu's signature of the chrF++ settings.
        exact: fraction of translations that equal their reference as in `exact_matches`, 0 to 1.
        sentences: number of translations.
        tokenize: tokenizer that BLEU used.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float
    sentences: int
    tokenize: str


@dataclass(frozen=True, eq=False)
class SentenceStatistics:
    """Counts of each of N sentences for corpus scores; the methods are statistics for `resampling`.

    Attributes:
        bleu_counts: (N, 10); words in translation and reference, matching 1- to 4-grams, all 1- to 4-grams.
        chrf_counts: (N, 24); for each n-gram order, n-grams in the translation, in the reference, and in both.
        right: (N,); 1 if the translation equals its reference as in `exact_matches`, otherwise 0.
    """

    bleu_counts: NDArray[np.int64]
    chrf_counts: NDArray[np.int64]
    right: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.right)

    def bleu(self, sentences: Indices) -> float:
        """Return corpus BLEU of the sentences with these indices, including repetitions."""
        counts = self.bleu_counts[sentences].sum(axis=0).tolist()
        matched = counts[2 : 2 + ORDERS]
        totals = counts[2 + ORDERS :]
        return float(_metrics().BLEU.compute_bleu(matched, totals, *counts[:2], smooth_method="exp").score)

    def chrf(self, sentences: Indices) -> float:
        """Return corpus chrF++ of the sentences with these indices, including repetitions."""
        counts = self.chrf_counts[sentences].sum(axis=0).tolist()
        return float(_metrics().CHRF(word_order=WORD_ORDER)._compute_score_from_stats(counts).score)

    def exact(self, sentences: Indices) -> float:
        """Return the exact-match rate of the sentences with these indices, including repetitions."""
        return float(self.right[sentences].mean())


def suitable_tokenization(references: Sequence[str]) -> str:
    """Return the sacrebleu tokenizer that suits the most frequent group of scripts in the references.

    - Latin, Cyrillic, Greek, Georgian, Hebrew: `13a`, the default of sacrebleu and of most published scores. It
      separates ASCII punctuation only.
    - Other scripts, many with non-ASCII punctuation (Bangla and Devanagari with the danda, Arabic, Armenian, Ethiopic
      …): `intl`, which separates all Unicode punctuation; `13a` would leave the danda attached to the last word.
    - Korean: `intl`, because Korean has spaces between words and the usual `ko-mecab` needs a dictionary.
    - Chinese: `zh`, which treats each ideograph as a word.
    - Japanese: `char`, because `ja-mecab` needs a dictionary; kana distinguish Japanese from Chinese.
    - Thai, Lao, Khmer, Burmese and other scripts without spaces between words: `char`.

    Text without letters gets `13a`.
    """
    text = "\n".join(references)
    kana = _letters(text, ("Hiragana", "Katakana"))
    han = _letters(text, ("Han", "Bopomofo"))
    unspaced = _letters(text, UNSPACED) - kana - han
    ascii_punctuated = _letters(text, ASCII_PUNCTUATED)
    others = len(regex.findall(r"\p{L}", text)) - kana - han - unspaced - ascii_punctuated
    by_letters = {
        "13a": ascii_punctuated,
        "intl": others,
        # Japanese text is about half kana; Chinese text may quote some kana.
        "char" if kana > (kana + han) / 10 else "zh": kana + han,
    }
    by_letters["char"] = max(by_letters.get("char", 0), unspaced)
    return max(by_letters, key=by_letters.__getitem__)


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None, lowercase: bool = False
) -> TranslationScores:
    """Compute BLEU, chrF++ and exact match of translations, with one reference each.

    Args:
        hypotheses: translations, not tokenized.
        references: references in the same order.
        tokenize: tokenizer for BLEU, one of `TOKENIZATIONS`; None: choose it by the script of the references.
        lowercase: whether to ignore case.

    Raises:
        GlassError: sacrebleu is not installed, there are no translations, the numbers of translations and references
            differ, or `tokenize` is unknown.
    """
    metrics = _metrics()
    tokenize = _checked_tokenization(hypotheses, references, tokenize)
    # Without `force`, sacrebleu warns about sentences that end in " .", which generated corpora may contain.
    bleu = metrics.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    chrf = metrics.CHRF(word_order=WORD_ORDER, lowercase=lowercase)
    bleu_score = float(bleu.corpus_score(list(hypotheses), [list(references)]).score)
    chrf_score = float(chrf.corpus_score(list(hypotheses), [list(references)]).score)
    return TranslationScores(
        bleu=bleu_score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score,
        chrf_signature=str(chrf.get_signature()),
        exact=float(exact_matches(hypotheses, references, lowercase).mean()),
        sentences=len(references),
        tokenize=tokenize,
    )


def sentence_statistics(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None, lowercase: bool = False
) -> SentenceStatistics:
    """Return the counts of each sentence; arguments as in `translation_scores`.

    Raises:
        GlassError: as in `translation_scores`.
    """
    metrics = _metrics()
    tokenize = _checked_tokenization(hypotheses, references, tokenize)
    # The effective order changes only the sentence score, which is not used, and not the counts.
    bleu = metrics.BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)
    chrf = metrics.CHRF(word_order=WORD_ORDER, lowercase=lowercase)
    bleu_rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = bleu.sentence_score(hypothesis, [reference])
        bleu_rows.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    # sacrebleu has no public function for these counts; a test compares their sums with its corpus score.
    chrf_rows = chrf._extract_corpus_statistics(list(hypotheses), [list(references)])
    return SentenceStatistics(
        bleu_counts=np.array(bleu_rows, dtype=np.int64),
        chrf_counts=np.array(chrf_rows, dtype=np.int64),
        right=exact_matches(hypotheses, references, lowercase),
    )


def can_score() -> bool:
    """Return whether sacrebleu is installed."""
    return find_spec("sacrebleu") is not None


def _metrics() -> ModuleType:
    try:
        import sacrebleu.metrics
    except ImportError:
        raise GlassError("BLEU and chrF++ need the package sacrebleu", install_command("metrics")) from None
    return sacrebleu.metrics


def _checked_tokenization(hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None) -> str:
    """Check the arguments, and return the tokenizer for BLEU."""
    if len(hypotheses) != len(references):
        raise GlassError(
            f"got {counted(len(hypotheses), 'translations')}, but {counted(len(references), 'references')}",
            "Give one reference for each translation.",
        )
    if not references:
        raise GlassError("there are no translations to score", "Evaluate on a file that is not empty.")
    if tokenize is None:
        return suitable_tokenization(references)
    if tokenize not in TOKENIZATIONS:
        raise GlassError(f"unknown BLEU tokenization {tokenize!r}", nearest(tokenize, TOKENIZATIONS))
    return tokenize


def exact_matches(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> NDArray[np.float64]:
    """Return (N,) values: 1 if a translation equals its reference, otherwise 0.

    Both are compared after NFC normalization, without white space at the ends, and in lower case if `lowercase`.
    """

    def normalized(text: str) -> str:
        return unicodedata.normalize("NFC", text.lower() if lowercase else text).strip()

    return np.array(
        [normalized(h) == normalized(r) for h, r in zip(hypotheses, references, strict=True)], dtype=np.float64
    )


def _letters(text: str, scripts: Sequence[str]) -> int:
    among = "".join(rf"\p{{{script}}}" for script in scripts)
    return len(regex.findall(rf"(?V1)[[{among}]&&\p{{L}}]", text))
