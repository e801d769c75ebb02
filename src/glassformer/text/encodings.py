"""Detect encodings and decode bytes; undecodable input is refused with the offset of the first invalid byte.

The whole input is read in blocks and checked. Byte order marks and the NUL bytes of UTF-16 are tried first, then UTF-8.
If the bytes are not UTF-8, or look like another format, the library chardet decides. Of the encodings that it may find,
only Windows-1252 is read without being asked for: nearly every byte string is valid in such encodings, so a wrong one
would not be noticed. The other encodings are refused, with the name for `data.encoding`.
"""

from __future__ import annotations

import codecs
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import regex

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted

Blocks = Callable[[], Iterator[bytes]]  # opens the input again and yields its bytes in order

LABELS = {"utf-8": "UTF-8", "utf-16-le": "UTF-16 LE", "utf-16-be": "UTF-16 BE", "cp1252": "Windows-1252"}
SAMPLE = 200_000  # bytes for the detection of an encoding
CONFIDENT = 0.25
MOST_MIXED = 0.1  # per byte above 0x7F, the most words in which another script follows a Latin letter
EAST_ASIAN_LANGUAGES = ("zh", "ja", "ko")  # their encodings often contain what looks like UTF-8
SHOWN_AROUND = 12  # bytes to show on each side of a byte that is not UTF-8
UNUSUAL = re.compile(rb"[\x00-\x08\x0e-\x1f]|\A%PDF|\+[A-Za-z0-9+/]{3}|~\{")
"""Bytes of formats and encodings that may be mistaken for ASCII: control characters, PDF, UTF-7, HZ."""
CONTROL = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f]")
"""Control characters, without white space, backspace and escape, which occur in the output of terminals."""
MOST_CONTROL = 0.2  # maximum share of control characters in a text
DISGUISED = re.compile("iso-?2022|utf-7|hz", re.IGNORECASE)  # encodings whose bytes are all ASCII
LEAST_FOREIGN = 4  # minimum number of letters outside ASCII in such an encoding; fewer may be due to chance
EAST_ASIAN = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "FULLWIDTH", "HALFWIDTH", "KATAKANA-HIRAGANA"))
HIGH = re.compile(rb"[\x80-\xff]")
UTF8_CHARACTER = re.compile(rb"[\xc2\xc3][\x80-\xbf]|\xe2\x80[\x80-\xbf]")  # the usual characters of Western texts
UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


@dataclass(frozen=True)
class Encoding:
    """The name of a Python codec, and the number of bytes to skip (the byte order mark)."""

    codec: str
    skip: int = 0

    @property
    def label(self) -> str:
        """Return the name for messages, such as `UTF-8` or `UTF-16 LE with a byte order mark`."""
        return LABELS.get(self.codec, self.codec) + (" with a byte order mark" if self.skip else "")


@dataclass(frozen=True)
class Scan:
    """The encoding of a file, its size in bytes and its SHA-256.

    `remark` is a note on the encoding for the user, or empty.
    """

    encoding: Encoding
    size: int
    digest: str
    remark: str = ""


class BinaryError(GlassError):
    """Error for input that is not text. In a folder, such files are left out, and no error is raised.

    Attributes:
        kind: description of the file for the note on files left out, such as "binary: NUL byte at offset 12".
    """

    def __init__(self, problem: str, remedy: str, kind: str) -> None:
        super().__init__(problem, remedy)
        self.kind = kind


class UndecodableError(Exception):
    """Error for a byte that the encoding does not allow, or a NUL. The offset counts bytes of the unpacked input."""

    def __init__(self, offset: int, byte: int, nul: bool = False) -> None:
        super().__init__(f"byte 0x{byte:02X} at offset {offset}")
        self.offset = offset
        self.byte = byte
        self.nul = nul


def scan(blocks: Blocks, setting: str, name: str) -> Scan:
    """Detect the encoding of an input, and check all its bytes.

    Args:
        blocks: function that opens the input; it is called several times.
        setting: `auto`, or the name of a Python codec (`utf-16`: with or without a byte order mark).
        name: the input's name, for messages.

    Raises:
        BinaryError: the input is not text; the error names the first NUL byte or the format.
        GlassError: the encoding is not supported, or differs from `setting`; the error names an offset.
    """
    head = next(blocks(), b"")
    setting = setting if setting == "auto" else codecs.lookup(setting).name
    if setting == "auto" and UNUSUAL.search(head):
        _refuse_other_formats(head, name)
    encoding = _first_guess(head, setting, name)
    if (setting, encoding) == ("auto", Encoding("utf-8")):
        _refuse_control_characters(head[:SAMPLE], name)
    try:
        return replace(_scan_with(blocks, encoding), remark=_second_mark_note(head, encoding, name))
    except UndecodableError as error:
        if error.nul or (setting == "auto" and encoding.codec.startswith("utf-16") and not encoding.skip):
            raise _binary_error(name, _first_nul(blocks, error.offset)) from None
        if setting != "auto" or encoding != Encoding("utf-8"):
            raise GlassError(
                f"{name} is not {LABELS.get(encoding.codec, encoding.codec)}: {error}",
                "Correct that byte, save the file as UTF-8, or set data.encoding to auto.",
            ) from None
        _refuse_other_formats(head, name)
        guesses = _guess(blocks, error.offset)
        if guesses[:1] in (["Windows-1252"], ["ISO-8859-1"]):
            try:
                remark = _western_remark(blocks, error, name)
                return replace(_scan_with(blocks, Encoding("cp1252")), remark=remark)
            except UndecodableError:  # a byte that Windows-1252 does not have
                guesses = []
        raise GlassError(
            f"{name} is not valid UTF-8: {error}",
            f"It may be {' or '.join(guesses[:2])}: save the file as UTF-8, or set data.encoding to its encoding."
            if guesses
            else "Correct that byte, save the file as UTF-8, or set data.encoding to its encoding.",
        ) from None


def decode(blocks: Iterator[bytes], encoding: Encoding) -> Iterator[str]:
    """Yield the text of `blocks`, in pieces of about the size of a block; line ends are unchanged.

    Raises:
        UndecodableError: a byte is not allowed, or is NUL; the error has the offset of the first such byte.
    """
    decoder = codecs.getincrementaldecoder(encoding.codec)("strict")
    skip = encoding.skip
    offset = encoding.skip  # of the first byte not yet decoded
    for block, final in _with_end(blocks):
        if skip:
            block = block[skip:]
            skip = 0
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final)
        except UnicodeDecodeError as error:
            raise UndecodableError(offset + error.start, error.object[error.start]) from None
        if "\0" in text:
            before = text[: text.index("\0")].encode(encoding.codec)
            raise UndecodableError(offset + len(before), 0, nul=True)
        offset += pending + len(block) - len(decoder.getstate()[0])
        if text:
            yield text


def _with_end(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    for block in blocks:
        yield block, False
    yield b"", True


def _scan_with(blocks: Blocks, encoding: Encoding) -> Scan:
    digest = hashlib.sha256()
    size = 0

    def hashed() -> Iterator[bytes]:
        nonlocal size
        for block in blocks():
            digest.update(block)
            size += len(block)
            yield block

    for _ in decode(hashed(), encoding):
        pass
    return Scan(encoding, size, digest.hexdigest())


def _refuse_other_formats(head: bytes, name: str) -> None:
    """Refuse formats that are not text, and encodings of which all bytes are ASCII: as UTF-8, they would be garbled."""
    import chardet

    found = chardet.detect(head[:SAMPLE])
    mime_type = found["mime_type"] or ""
    if mime_type and not mime_type.startswith("text/") and mime_type != "application/octet-stream":
        raise BinaryError(
            f"{name} is not a text but a file of the type {mime_type}",
            "Save its text as a UTF-8 .txt file first.",
            kind=mime_type,
        )
    encoding = found["encoding"] or ""
    if DISGUISED.match(encoding):
        letters = [
            letter for letter in head[:SAMPLE].decode(encoding, "ignore") if letter.isalpha() and letter > "\x7f"
        ]
        scripts = {unicodedata.name(letter, "?").partition(" ")[0] for letter in letters}
        if len(letters) >= LEAST_FOREIGN and (len(scripts) == 1 or scripts <= EAST_ASIAN):
            raise GlassError(
                f"{name} looks like {encoding.upper()}: read as UTF-8, its text would be garbled",
                f"Set data.encoding to {encoding.lower()}. If the file is UTF-8, set data.encoding to utf-8.",
            )


def _refuse_control_characters(sample: bytes, name: str) -> None:
    """Refuse bytes of which many are control characters, as in UTF-16 without spaces or line ends."""
    share = len(CONTROL.findall(sample)) / max(len(sample), 1)
    if share > MOST_CONTROL:
        raise BinaryError(
            f"{name} is not a text in UTF-8: {share:.0%} of its bytes are control characters",
            "Save it as UTF-8. If it is UTF-16, set data.encoding to utf-16-le or utf-16-be.",
            kind=f"{share:.0%} control characters",
        )


def _guess(blocks: Blocks, offset: int) -> list[str]:
    """Return the likeliest encodings of input that is not UTF-8 from `offset` on; the likeliest is first.

    Only confident results count if the input may be damaged UTF-8: well-formed UTF-8 before the first bad byte, usual
    characters of Western texts in UTF-8, or mostly well-formed UTF-8.
    """
    import chardet

    start = high = sequences = in_sequences = 0
    damaged = False
    sample = b""
    for block in blocks():
        damaged = damaged or (start < offset and HIGH.search(block[: offset - start]) is not None)
        damaged = damaged or UTF8_CHARACTER.search(block) is not None
        matches = UTF8_SEQUENCE.findall(block)
        sequences += len(matches)
        in_sequences += sum(map(len, matches))
        high += len(HIGH.findall(block))
        begin = max(0, offset - 1000 - start)
        if begin < len(block) and len(sample) < SAMPLE:
            sample += block[begin : begin + SAMPLE - len(sample)]
        start += len(block)
    damaged = damaged or (sequences > 0 and sequences >= high - in_sequences)
    guesses: list[str] = []
    for found in chardet.detect_all(sample, no_match_encoding="utf-8"):
        name = found["encoding"]
        if name in (None, "utf-8") or (
            damaged and not (found["confidence"] >= CONFIDENT and found["language"] in EAST_ASIAN_LANGUAGES)
        ):
            continue
        # chardet takes some French for Cyrillic, which would be inside Latin words.
        mixed_words = regex.findall(r"\p{Latin}[\p{L}--\p{Latin}]", sample.decode(name, "replace"), regex.V1)
        if len(mixed_words) <= MOST_MIXED * len(HIGH.findall(sample)):
            guesses.append(name)
    return guesses


def _first_guess(head: bytes, setting: str, name: str) -> Encoding:
    if setting not in ("auto", "utf-8", "utf-16"):
        return Encoding(setting)
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise GlassError(
            f"{name} begins with the byte order mark of UTF-32 (at byte offset 0)",
            "Save it as UTF-8, or set data.encoding to utf-32.",
        )
    if setting != "utf-16" and head.startswith(codecs.BOM_UTF8):
        return Encoding("utf-8", 3)
    if setting in ("auto", "utf-16"):
        if head.startswith(codecs.BOM_UTF16_LE):
            return Encoding("utf-16-le", 2)
        if head.startswith(codecs.BOM_UTF16_BE):
            return Encoding("utf-16-be", 2)
        if guess := _utf16_by_nuls(head):
            return guess
        if setting == "utf-16":
            return Encoding("utf-16-le")
        if 0 in head:
            raise _binary_error(name, head.index(0))
    return Encoding("utf-8")


def _utf16_by_nuls(head: bytes) -> Encoding | None:
    """Return the encoding of UTF-16 text without a byte order mark; None if the bytes do not look like UTF-16.

    In UTF-16, spaces, line ends and Latin letters have a NUL byte: always at odd offsets (LE) or at even offsets (BE).
    Bytes of which less than a third are NUL, and the others are a text in UTF-8, are not UTF-16.
    """
    sample = head[: 1 << 16]
    even_nuls = sample[::2].count(0)
    odd_nuls = sample[1::2].count(0)
    if not even_nuls + odd_nuls or min(even_nuls, odd_nuls) > 0.02 * (even_nuls + odd_nuls):
        return None
    if 3 * (even_nuls + odd_nuls) < len(sample) and _is_plain_utf8(sample.replace(b"\0", b"")):
        return None
    codec = "utf-16-le" if odd_nuls > even_nuls else "utf-16-be"
    text = sample[: len(sample) // 2 * 2].decode(codec, "ignore")
    unusual = sum(unicodedata.category(c) in ("Cn", "Co", "Cc") and c not in "\t\n\r\f" for c in text)
    return Encoding(codec) if text and unusual <= 0.01 * len(text) else None


def _is_plain_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without control characters; the last character may be cut off."""
    try:
        codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        return False
    return CONTROL.search(data) is None


def _second_mark_note(head: bytes, encoding: Encoding, name: str) -> str:
    """Return a note on a second byte order mark, which is a character of the text; empty if there is none."""
    mark = head[: encoding.skip]
    if not mark or not head.startswith(mark + mark):
        return ""
    return f"{name} begins with two byte order marks: the second is read as the character U+FEFF"


def _western_remark(blocks: Blocks, error: UndecodableError, name: str) -> str:
    """Return a note on why a file is read as Windows-1252: the first byte that is not UTF-8, and the text around it."""
    high_count = start = 0
    around = b""
    for block in blocks():
        high_count += len(HIGH.findall(block))
        if start <= error.offset < start + len(block):
            position = error.offset - start
            around = block[max(0, position - SHOWN_AROUND) : position + SHOWN_AROUND]
        start += len(block)
    high_bytes = counted(high_count, "bytes above 0x7F", "byte above 0x7F")
    return (
        f"{name} is read as Windows-1252, because byte 0x{error.byte:02X} at offset {error.offset} is not UTF-8: "
        f"{around.decode('cp1252', 'replace')!r} ({high_bytes} in {start:,}); data.encoding = utf-8 refuses such bytes"
    )


def _binary_error(name: str, offset: int) -> BinaryError:
    return BinaryError(
        f"{name} is a binary file, not text: NUL byte at offset {offset}",
        "Give a text file (UTF-8, UTF-16 or Windows-1252).",
        kind=f"binary: NUL byte at offset {offset}",
    )


def _first_nul(blocks: Blocks, fallback: int) -> int:
    start = 0
    for block in blocks():
        if (position := block.find(b"\0")) >= 0:
            return start + position
        start += len(block)
    return fallback
