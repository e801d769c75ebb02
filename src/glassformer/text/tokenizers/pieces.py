"""Where a text may be cut so that encoding the parts gives the same tokens as encoding the whole."""

from __future__ import annotations

from collections.abc import Iterator

import regex

from glassformer.base.errors import GlassError

PREPEND = regex.compile(r"\p{Grapheme_Cluster_Break=Prepend}")


def utf8(text: str) -> bytes:
    """The text's UTF-8 bytes.

    Raises:
        GlassError: the text holds half of a surrogate pair, which is not a character and has no UTF-8 form.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise GlassError(
            f"the text holds a lone surrogate, U+{code:04X}, at character {error.start:,}: it is not valid Unicode",
            "Read the source with the right encoding, or take that character out.",
        ) from None


def is_safe(text: str, cut: int) -> bool:
    """Whether no scheme has a token, and no Unicode form a composition, that crosses this position.

    Two places are safe in all seven schemes: before a space that follows a visible character (a space only ever
    *starts* a token or is one), and after a newline that a visible character follows (a newline only ever *ends* a
    token). A visible character here is one that Python does not call whitespace: the widest definition there is. The
    few characters that stick to what follows them (Unicode's Prepend class, Annex 29 rule GB9b) are left out.
    """
    before = text[cut - 1]
    after = text[cut]
    if after == " ":
        return not before.isspace() and PREPEND.match(before) is None
    return before == "\n" and not after.isspace()


def cut_before(text: str, start: int, near: int) -> int:
    """The last safe place in `start < place <= near`, or `start` where there is none."""
    if near >= len(text):
        return max(start, len(text))
    return next((cut for cut in range(near, start, -1) if is_safe(text, cut)), start)


def pieces(text: str, size: int) -> Iterator[str]:
    """The text in consecutive parts of about `size` characters, cut at safe places only (so a part may be longer)."""
    start = 0
    while start < len(text):
        end = cut_before(text, start, start + size)
        if end == start:
            ahead = range(start + size + 1, len(text))
            end = next((cut for cut in ahead if is_safe(text, cut)), len(text))
        yield text[start:end] if end - start < len(text) else text
        start = end
