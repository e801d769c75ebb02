"""Cut a text at safe positions, where encoding the pieces gives the same tokens as encoding the whole text."""

from __future__ import annotations

from collections.abc import Iterator

import regex

from glassformer.base.errors import GlassError

PREPEND = regex.compile(r"\p{Grapheme_Cluster_Break=Prepend}")


def utf8(text: str) -> bytes:
    """Return a text as UTF-8 bytes.

    Raises:
        GlassError: `text` is not a string, or contains half of a surrogate pair, which is not a character and has no
            UTF-8 form.
    """
    if not isinstance(text, str):
        raise GlassError(f"the text must be a string, got {type(text).__name__}", "Give one text at a time.")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise GlassError(
            f"the text has a lone surrogate, U+{code:04X}, at character {error.start:,}, so it is not valid Unicode",
            "Read the source with the right encoding, or remove that character.",
        ) from None


def is_safe(text: str, cut: int) -> bool:
    """Return whether a cut at this position splits no token of any scheme and changes no Unicode normalization.

    Two kinds of positions are safe in all seven schemes: before a space that follows a visible character (a space only
    *starts* a token or is one), and after a newline that a visible character follows (a newline only *ends* a token).
    A visible character is any character that is not whitespace by Python's definition, which is the widest. The few
    characters that combine with the next one (Unicode's Prepend class, Annex 29 rule GB9b) do not make a position safe.
    """
    before = text[cut - 1]
    after = text[cut]
    if after == " ":
        return not before.isspace() and PREPEND.match(before) is None
    return before == "\n" and not after.isspace()


def cut_before(text: str, start: int, near: int) -> int:
    """Return the last safe position with `start < position <= near`, or `start` if there is none.

    The end of the text is a safe position.
    """
    if near >= len(text):
        return max(start, len(text))
    return next((cut for cut in range(near, start, -1) if is_safe(text, cut)), start)


def pieces(text: str, size: int) -> Iterator[str]:
    """Yield a text in pieces of about `size` characters, cut only at safe positions, so a piece may be longer."""
    start = 0
    while start < len(text):
        end = cut_before(text, start, start + size)
        if end == start:
            candidates = range(start + size + 1, len(text))
            end = next((cut for cut in candidates if is_safe(text, cut)), len(text))
        yield text[start:end] if end - start < len(text) else text
        start = end
