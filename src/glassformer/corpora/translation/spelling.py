"""Join words into text and split it again: elision, contraction, capitals and punctuation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

STOPS = {"english": ".", "french": ".", "bangla": "।"}
VOWELS = {"english": "aeiou", "french": "aeiouéèêàh", "bangla": ""}  # every French h of the lexicon is silent
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des"}
ELIDED = re.compile(r"\b(l|d|n|qu)'")


def write(words: Sequence[str], language: str) -> str:
    """Join words into a sentence; a word "a|b" is spelled a before a consonant and b before a vowel."""
    spelt = _choose_spellings(words, VOWELS[language])
    if language == "french":
        spelt = _contract(spelt)
    text = " ".join(spelt).replace("' ", "'").replace(" ,", ",")
    return text[0].upper() + text[1:] + STOPS[language]


def _choose_spellings(words: Sequence[str], vowels: str) -> list[str]:
    spelt: list[str] = []
    for index, word in enumerate(words):
        if "|" in word:
            plain, before_vowel = word.split("|")
            word = before_vowel if words[index + 1][0] in vowels else plain
        spelt.append(word)
    return spelt


def _contract(words: Sequence[str]) -> list[str]:
    joined: list[str] = []
    for word in words:
        if joined and (joined[-1], word) in CONTRACTIONS:
            joined[-1] = CONTRACTIONS[joined[-1], word]
        else:
            joined.append(word)
    return joined


def split(text: str, language: str) -> list[str]:
    """Split a sentence made by `write` into its words; for other text the result is undefined."""
    text = unicodedata.normalize("NFC", text).removesuffix(STOPS[language]).replace(",", " ,")
    text = text[:1].lower() + text[1:]
    if language != "french":
        return text.split()
    expansions = {joined: list(words) for words, joined in CONTRACTIONS.items()}
    return [word for part in ELIDED.sub(r"\1' ", text).split() for word in expansions.get(part, [part])]
