"""Find the id of a token or the index of a label that the user names."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import in_quotes
from glassformer.text.tokenizers import Tokenizer


def token_named(tokenizer: Tokenizer, name: str | int) -> int:
    """Return the id of a token, given as an id or as text; a name in double quotes is always text.

    Raises:
        GlassError: the id is outside the vocabulary, or the text is not exactly one token of the vocabulary.
    """
    if isinstance(name, int) or (name.isascii() and name.isdigit() and len(name) < 20):
        if not 0 <= int(name) < tokenizer.vocab_size:
            raise GlassError(
                f"token {name} is outside the vocabulary",
                f"Give an id from 0 to {tokenizer.vocab_size - 1}. For the token with the text {name}, add double "
                f"quotes: '\"{name}\"'.",
            )
        return int(name)
    text = name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name
    special = {tokenizer.token_text(id): id for id in sorted(tokenizer.special)}
    if text in special:
        return special[text]
    ids = tokenizer.encode(text)
    if not ids:
        raise GlassError(f"{name!r} names no token", "Give the text of a token, or its id.")
    if len(ids) > 1:
        pieces = ", ".join(f"{in_quotes(tokenizer.token_text(id))} ({id})" for id in ids[:8])
        pieces += ", …" if len(ids) > 8 else ""
        raise GlassError(f"{text!r} is {len(ids)} tokens, not one: {pieces}", _one_token_advice(tokenizer, text))
    if ids[0] == tokenizer.unknown_id:
        raise GlassError(f"{text!r} is not in the vocabulary", _one_token_advice(tokenizer, text))
    return ids[0]


def label_named(labels: Sequence[str], name: str | int) -> int:
    """Return the index of a label, given as its name or, if no label has this name, as its number from 0.

    Raises:
        GlassError: there is no such label.
    """
    name = str(name)
    if name in labels:
        return labels.index(name)
    if name.isascii() and name.isdigit() and int(name) < len(labels):
        return int(name)
    raise GlassError(f"there is no label {name!r}", nearest(name, labels))


def _one_token_advice(tokenizer: Tokenizer, text: str) -> str:
    """Return advice on a text that is not one token: the text with or without a leading space, if that is one token."""
    other = text.removeprefix(" ") if text.startswith(" ") else f" {text}"
    ids = tokenizer.encode(other) if other else []
    if len(ids) == 1 and ids[0] != tokenizer.unknown_id:
        return f"Did you mean {other!r}, which is one token?"
    return "Name one token, by its text or its id."
