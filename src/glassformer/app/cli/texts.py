"""Input texts of the commands, from arguments, standard input or the lines of a file, and warnings about them."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError, nearest_file
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer.tasks import AnyTextModel
    from glassformer.text.tokenizers import Tokenizer

SHOWN_UNKNOWN = 20
"""Maximum number of unknown characters or words listed in a warning."""


def lines_of(path: Path, what: str = "prompt") -> list[str]:
    """Return the lines of a file, each of which is one text.

    The file may be gzipped, and in any encoding that training reads. A line ends with `\\n` or `\\r\\n`, as in parallel
    files and for `wc -l`, so that output lines stay aligned with input lines.

    Raises:
        GlassError: the file cannot be read, is empty, is a damaged gzip file, or has an unknown encoding.
    """
    try:
        text = _decode_file(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise GlassError(
            f"{path} does not exist", nearest_file(path, f"Give a file with one {what} per line.")
        ) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", f"Give a file with one {what} per line.") from None
    if not text:
        raise GlassError(f"{path} is empty", f"Give a file with one {what} per line.")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _decode_file(data: bytes, name: str) -> str:
    """Return the bytes of a file as text, decompressed and decoded as in training; print any note on the encoding.

    Raises:
        GlassError: the bytes are a damaged gzip file, or have an unknown encoding.
    """
    from glassformer.text.encodings import decode, scan
    from glassformer.text.reading import GZIP

    try:
        unpacked = gzip.decompress(data) if data.startswith(GZIP) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GlassError(f"{name} is a damaged gzip file: {error}", "Compress or download the file again.") from None
    try:
        scanned = scan(lambda: iter([unpacked]), "auto", name)
    except GlassError as error:
        raise GlassError(error.problem, "Save the file as UTF-8, then try again.") from None
    if scanned.remark:
        print(scanned.remark, file=sys.stderr)
    return "".join(decode(iter([unpacked]), scanned.encoding))


def standard_input(keep_line_end: bool = False) -> str:
    """Return standard input as one text, without the final line end unless `keep_line_end` is True."""
    text = as_utf8(sys.stdin.buffer.read(), "standard input")
    return text if keep_line_end else text.removesuffix("\n").removesuffix("\r")


def as_utf8(data: bytes, name: str) -> str:
    """Decode UTF-8 bytes; a byte order mark at the beginning is removed.

    Raises:
        GlassError: the bytes are not UTF-8; `name` is the name of the input in the error.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlassError(f"{name} is not UTF-8 at byte {error.start}", "Convert it to UTF-8.") from None


def warn_unknown(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Print a warning if the tokenizer does not know some characters of the texts or, for word tokenizers, some words.

    The warning lists at most `SHOWN_UNKNOWN` of them.
    """
    from glassformer.tasks import unknown_symbols

    unknown = sorted({symbol for text in texts for symbol in unknown_symbols(tokenizer, text)})
    if unknown:
        what = "words" if tokenizer.kind in ("words", "wordpiece") else "characters"
        listed = " ".join(map(_visible, unknown[:SHOWN_UNKNOWN]))
        more = f" and {len(unknown) - SHOWN_UNKNOWN:,} more" if len(unknown) > SHOWN_UNKNOWN else ""
        print(
            f"these {what} are not in the vocabulary; the model reads each as unknown: {listed}{more}", file=sys.stderr
        )


def _visible(symbol: str) -> str:
    """Return a symbol in visible characters: white space and unprintable characters become code points.

    >>> _visible("é"), _visible("\\u3000"), _visible("a\\u200bb")
    ('é', 'U+3000', 'aU+200Bb')
    """
    return "".join(
        character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"
        for character in symbol
    )


def warn_unknown_to(model: AnyTextModel, text: str, target: str | None) -> None:
    """Print the warning of `warn_unknown` for a text, or for a source and its target, with the model's tokenizers."""
    from glassformer.tasks import MaskFiller, Translator

    if isinstance(model, Translator):
        warn_unknown(model.source_tokenizer, [text])
        warn_unknown(model.tokenizer, [] if target is None else [target])
    else:
        warn_unknown(model.tokenizer, model.parts(text) if isinstance(model, MaskFiller) else [text])


def note_still_training(folder: Path, checkpoint: str) -> None:
    """Print a note if the run is still training, because results are then those of an unfinished run."""
    from glassformer.base.locks import is_held

    if is_held(folder):
        print(f"{folder} is still training: this is its {checkpoint} checkpoint so far", file=sys.stderr)


def warn_truncated(unread: list[int], what: str, context: int) -> None:
    """Print a warning if texts were truncated: the number of these texts, and the largest number of omitted tokens."""
    truncated = [count for count in unread if count]
    if truncated:
        of = f"of {len(unread):,} {what}"
        subject = counted(len(truncated), f"{of} are", f"{of} is")
        extent = f"the ends were left out, up to {counted(max(truncated), 'tokens')}"
        if len(unread) == 1:
            subject = f"the {what.removesuffix('s')} is"
            extent = f"its last {counted(truncated[0], 'tokens were left out', 'token was left out')}"
        print(
            f"{subject} longer than the context (model.context = {context}): {extent}",
            file=sys.stderr,
        )
