"""Find the symbols of a text that are not in the vocabulary of a tokenizer."""

from __future__ import annotations

import regex

from glassformer.text.tokenizers import Tokenizer
from glassformer.text.tokenizers.layout import WORDS


def unknown_symbols(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the distinct symbols of a text that a tokenizer does not know, in order of first appearance.

    Symbols are characters, graphemes or words, depending on the tokenizer, without the white space around them.
    """
    unknown = tokenizer.unknown_id
    if unknown is None or unknown not in tokenizer.encode(text):
        return []
    patterns = {"graphemes": r"\X", "words": WORDS, "wordpiece": r"\w+|\W"}
    symbols = regex.findall(patterns.get(tokenizer.kind, r"(?s)."), text)
    parts = [symbol for symbol in symbols if unknown in tokenizer.encode(symbol)]
    return list(dict.fromkeys(part.strip() or part for part in parts))
