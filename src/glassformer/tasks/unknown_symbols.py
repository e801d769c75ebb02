"""Find the symbols of a text that are not in the vocabulary of a tokenizer, or are in it in another Unicode form."""

from __future__ import annotations

from unicodedata import normalize

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


def other_forms(tokenizer: Tokenizer, text: str) -> dict[str, tuple[str, str]]:
    """Return the symbols that a text has in another Unicode form than the tokenizer's vocabulary.

    The same letter can be one code point or several: Bangla `য়` is U+09DF, or, as keyboards and the form NFC write it,
    U+09AF U+09BC. A tokenizer that does not normalize texts gives them different tokens, so that a model that was
    trained with one form does not know the other form.

    Returns:
        The form in the text and the form in the vocabulary, by symbol. A form is in the vocabulary if a token contains
        it or, if no token contains any form or tokens are characters, if all its code points are tokens.
    """
    composed = normalize("NFC", text)
    for symbol in map(chr, (*range(0x900, 0x1000), *range(0xFB1D, 0xFB50))):  # NFC never composes some of these
        parts = normalize("NFC", symbol)
        if len(parts) > 1:
            composed = composed.replace(parts, symbol)
    symbols = [symbol for symbol in dict.fromkeys(composed) if normalize("NFD", symbol) != symbol]
    if not symbols:
        return {}
    tokens = "\n".join(tokenizer.decode([id]) for id in range(tokenizer.vocab_size))
    code_points = set(tokens)
    found = {}
    for symbol in symbols:
        forms = {
            form: code_points.issuperset(form) + (tokenizer.kind != "characters" and form in tokens)
            for form in (symbol, normalize("NFC", symbol), normalize("NFD", symbol))
        }
        written = max((form for form in forms if form in text), key=len, default=symbol)
        known = max(forms, key=lambda form: forms[form])
        words = "".join({f" {word}" for word in text.split() if written in word})
        if forms[known] > forms[written] and tokenizer.encode(words.replace(written, known)) != tokenizer.encode(words):
            found[symbol] = (written, known)
    return found
