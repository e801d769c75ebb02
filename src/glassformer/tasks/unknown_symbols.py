"""Find the symbols of a text that are not in the vocabulary of a tokenizer, or are in it in another Unicode form."""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import normalize

import regex

from glassformer.base.wording import listed
from glassformer.tasks.classifying import TextClassifier
from glassformer.tasks.continuing import TextModel
from glassformer.tasks.filling import MaskFiller
from glassformer.tasks.translating import Translator
from glassformer.text.tokenizers import Tokenizer
from glassformer.text.tokenizers.layout import WORDS

SHOWN_UNKNOWN = 20
"""Maximum number of unknown characters or words listed in a note."""


def text_notes(
    model: TextModel | Translator | TextClassifier | MaskFiller,
    texts: Iterable[str],
    targets: Iterable[str | None] = (),
) -> list[str]:
    """Return the notes of `symbol_notes` for the texts that a model reads, with the tokenizers of the model.

    Args:
        model: text model of a run; the masks of a `MaskFiller` are not symbols of the text.
        texts: texts, questions or sources.
        targets: targets, for a `Translator`; None is left out.
    """
    if isinstance(model, Translator):
        notes = [*symbol_notes(model.source_tokenizer, texts), *symbol_notes(model.tokenizer, filter(None, targets))]
        return list(dict.fromkeys(notes))
    if isinstance(model, MaskFiller):
        texts = [part for text in texts for part in (model.parts(text) if model.MASK in text else [text])]
    return symbol_notes(model.tokenizer, texts)


def symbol_notes(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Return a note if some characters of the texts are in the vocabulary of a tokenizer in another Unicode form.

    Another note lists the characters or, for word tokenizers, the words that are not in the vocabulary. Each note lists
    at most `SHOWN_UNKNOWN`.
    """
    texts = list(texts)
    notes = []
    forms = other_forms(tokenizer, "\n".join(texts))
    if forms:
        shown = [f"{_code_points(written)} for {_code_points(known)}" for written, known in forms.values()]
        notes.append(
            "the text has another Unicode form than the tokenizer's text, so the model reads other tokens: "
            f"{listed(shown, SHOWN_UNKNOWN)}"
        )
    unknown = sorted({symbol for text in texts for symbol in unknown_symbols(tokenizer, text)})
    if unknown:
        what = "words" if tokenizer.kind in ("words", "wordpiece") else "characters"
        symbols = " ".join(map(_visible, unknown[:SHOWN_UNKNOWN]))
        more = f" and {len(unknown) - SHOWN_UNKNOWN:,} more" if len(unknown) > SHOWN_UNKNOWN else ""
        notes.append(f"these {what} are not in the vocabulary; the model reads each as unknown: {symbols}{more}")
    return notes


def unknown_symbols(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the distinct symbols of a text that a tokenizer does not know, in order of first appearance.

    Symbols are characters, graphemes or words, depending on the tokenizer, without the white space around them.
    """
    unknown = tokenizer.unknown_id
    if unknown is None or unknown not in tokenizer.encode(text):
        return []
    patterns = {"graphemes": r"\X", "words": WORDS, "wordpiece": r"\w+|\W"}
    symbols = dict.fromkeys(regex.findall(patterns.get(tokenizer.kind, r"(?s)."), text))
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
    if text.isascii():
        return {}
    composed = normalize("NFC", text)
    for symbol in map(chr, (*range(0x900, 0x1000), *range(0xFB1D, 0xFB50))):  # NFC never composes some of these
        parts = normalize("NFC", symbol)
        if len(parts) > 1:
            composed = composed.replace(parts, symbol)
    symbols = [symbol for symbol in dict.fromkeys(composed) if normalize("NFD", symbol) != symbol]
    if not symbols:
        return {}
    tokens = tokenizer.all_token_texts
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


def _code_points(symbol: str) -> str:
    return " ".join(f"U+{ord(character):04X}" for character in symbol)


def _visible(symbol: str) -> str:
    """Return a symbol in visible characters: white space and unprintable characters become code points.

    >>> _visible("é"), _visible("\\u3000"), _visible("a\\u200bb")
    ('é', 'U+3000', 'aU+200Bb')
    """
    return "".join(
        character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"
        for character in symbol
    )
