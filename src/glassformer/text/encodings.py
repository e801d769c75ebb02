"""Detect encodings and decode bytes; undecodable input is refused with the offset of the first invalid byte.

The whole input is read in blocks and checked. Byte order marks and the NUL bytes of UTF-16 are tried first, then UTF-8.
Windows-1252 is chosen automatically only if the decoded text reads like a Western language, because nearly every byte
string is valid Windows-1252; this check reads the input again. Encodings that look like ASCII (ISO-2022, UTF-7) are
refused if `data.encoding` is auto.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted

Blocks = Callable[[], Iterator[bytes]]  # opens the input again and yields its bytes in order

LABELS = {"utf-8": "UTF-8", "utf-16-le": "UTF-16 LE", "utf-16-be": "UTF-16 BE", "cp1252": "Windows-1252"}
MAGIC = {
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a zip archive (or a Word, Excel or EPUB file)",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"PAR1": "a Parquet file",
    b"\xd0\xcf\x11\xe0": "an old Word or Excel file",
    b"7z\xbc\xaf\x27\x1c": "a 7-zip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a zstandard archive",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x7fELF": "a program",
}


@dataclass(frozen=True)
class Encoding:
    """The name of a Python codec, and the number of bytes to skip (the byte order mark)."""

    codec: str
    skip: int = 0

    @property
    def label(self) -> str:
        """Return the name for messages, such as `UTF-8` or `UTF-16 LE with a byte order mark`."""
        return LABELS[self.codec] + (" with a byte order mark" if self.skip else "")


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
        super().__init__(offset, byte)
        self.offset = offset
        self.byte = byte
        self.nul = nul


def scan(blocks: Blocks, setting: str, name: str) -> Scan:
    """Detect the encoding of an input, and check all its bytes.

    Args:
        blocks: function that opens the input; it is called several times.
        setting: `auto`, or the required encoding (`utf-8`, `utf-16`, `windows-1252`).
        name: the input's name, for messages.

    Raises:
        BinaryError: the input is not text; the error names the first NUL byte or the format.
        GlassError: the encoding is unknown or not supported, or differs from `setting`; the error names an offset.
    """
    head = next(blocks(), b"")
    if setting == "auto":
        _refuse_known_binaries(head, name)
        _refuse_seven_bit_encodings(head, name)
    encoding = _first_guess(head, setting, name)
    try:
        return replace(_scan_with(blocks, encoding), remark=_second_mark_note(head, encoding, name))
    except UndecodableError as error:
        if error.nul or (setting == "auto" and encoding.codec.startswith("utf-16") and not encoding.skip):
            raise _binary_error(name, _first_nul(blocks, error.offset)) from None
        if setting == "auto" and encoding == Encoding("utf-8") and _is_western(blocks, error.offset):
            remark = _western_remark(blocks, error, name)
            return replace(_scan_with(blocks, Encoding("cp1252")), remark=remark)
        raise _encoding_error(name, encoding, error, setting) from None


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


def _first_guess(head: bytes, setting: str, name: str) -> Encoding:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise GlassError(
            f"{name} begins with the byte order mark of UTF-32 (at byte offset 0)", "Save it as UTF-8, then try again."
        )
    if setting == "windows-1252":
        return Encoding("cp1252")
    if setting in ("auto", "utf-8") and head.startswith(codecs.BOM_UTF8):
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
    """
    sample = head[: 1 << 16]
    even_nuls = sample[::2].count(0)
    odd_nuls = sample[1::2].count(0)
    if not even_nuls + odd_nuls or min(even_nuls, odd_nuls) > 0.02 * (even_nuls + odd_nuls):
        return None
    codec = "utf-16-le" if odd_nuls > even_nuls else "utf-16-be"
    text = sample[: len(sample) // 2 * 2].decode(codec, "ignore")
    unusual = sum(unicodedata.category(c) in ("Cn", "Co", "Cc") and c not in "\t\n\r\f" for c in text)
    return Encoding(codec) if text and unusual <= 0.01 * len(text) else None


def _refuse_known_binaries(head: bytes, name: str) -> None:
    for magic, description in MAGIC.items():
        if head.startswith(magic):
            raise BinaryError(
                f"{name} is {description}, not text (seen at byte offset 0)",
                "Save its text as a UTF-8 .txt file first.",
                kind=description,
            )


def _refuse_seven_bit_encodings(head: bytes, name: str) -> None:
    """Refuse encodings whose bytes are all ASCII: read as UTF-8, their text would be garbled."""
    match = ISO_2022.search(head)
    label = "ISO-2022"
    offset = match.start() if match else None
    if offset is None:
        label = "UTF-7"
        offset = _utf7_offset(head)
    if offset is not None:
        raise GlassError(
            f"{name} looks like {label} (at byte offset {offset}): read as UTF-8, its text would be garbled",
            "Save it as UTF-8. If it already is UTF-8, set data.encoding to utf-8.",
        )


def _utf7_offset(head: bytes) -> int | None:
    """Return the offset of the first UTF-7 sequence; None if the bytes do not look like UTF-7.

    Bytes look like UTF-7 if all are ASCII, every `+` begins a valid sequence, and the sequences encode at least
    `LEAST_UTF7` characters outside ASCII, whose letters are all of one script.
    """
    if not head.isascii():
        return None
    texts: list[str] = []
    first: int | None = None
    for match in UTF7_SEQUENCE.finditer(head):
        digits = match[1]
        if match.group() == b"+-":  # a plus sign
            continue
        if match.end() == len(head) and texts:  # the block may end inside a sequence
            break
        text = _utf7_text(digits)
        if text is None:
            return None
        texts.append(text)
        first = match.start() if first is None else first
    foreign = [character for character in "".join(texts) if not character.isascii()]
    scripts = {_script(character) for character in foreign if character.isalpha()}
    return first if len(foreign) >= LEAST_UTF7 and len(scripts) == 1 else None


def _utf7_text(digits: bytes) -> str | None:
    """Return the text that the base64 digits of a UTF-7 sequence encode; None if they are not valid."""
    try:
        raw = base64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
        text = raw.decode("utf-16-be")
    except (binascii.Error, UnicodeDecodeError):
        return None
    exact = bool(raw) and base64.b64encode(raw).rstrip(b"=") == digits
    readable = all(unicodedata.category(character) not in ("Cn", "Co", "Cc", "Cs") for character in text)
    return text if exact and readable else None


def _script(character: str) -> str:
    """Return the script of a letter: the first word of its Unicode name; East Asian scripts count as one script."""
    word = unicodedata.name(character, "").partition(" ")[0]
    return "EAST ASIAN" if word in EAST_ASIAN else word


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
        f"{around.decode('cp1252')!r} ({high_bytes} in {start:,}); data.encoding = utf-8 refuses such bytes"
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


def _encoding_error(name: str, encoding: Encoding, error: UndecodableError, setting: str) -> GlassError:
    where = f"byte 0x{error.byte:02X} at offset {error.offset}"
    if setting == "auto" and encoding.codec == "utf-8":
        return GlassError(
            f"{name} is not valid UTF-8: {where}; it does not seem to be Windows-1252 either",
            "Correct that byte, save the file as UTF-8, or set data.encoding to utf-16 or windows-1252.",
        )
    remedy = {
        "auto": "Correct that byte, or save the file as UTF-8.",
        "utf-8": "Correct that byte, save the file as UTF-8, or set data.encoding to auto.",
    }.get(setting, "Correct that byte, or set data.encoding to auto.")
    return GlassError(f"{name} is not {LABELS[encoding.codec]}: {where}", remedy)


SHOWN_AROUND = 12  # bytes to show on each side of a byte that is not UTF-8
ISO_2022 = re.compile(rb"\x1b\$(?:[@AB]|[()*+][A-Z@])")  # the escape sequences that announce two-byte characters
UTF7_SEQUENCE = re.compile(rb"\+([A-Za-z0-9+/]*)-?")
LEAST_UTF7 = 4  # minimum number of non-ASCII characters; fewer may come from plus signs in plain text
EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "FULLWIDTH", "HALFWIDTH", "KATAKANA-HIRAGANA", "IDEOGRAPHIC")
LETTER = rb"A-Za-z\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff"
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
HIGH = re.compile(rb"[\x80-\xff]")
LETTERS = re.compile(rb"[" + LETTER + rb"]")
HIGH_LETTERS = re.compile(rb"[\xc0-\xd6\xd8-\xf6\xf8-\xff]")
# Symptoms of another code page: a symbol inside a word, a capital after a small letter, three high letters in a row.
SIGN = rb"\x80\x82-\x84\x86-\x89\x8b\x93-\x95\x98\x9b\xa1-\xa9\xab\xac\xaf-\xb3\xb5\xb6\xb8\xb9\xbb-\xbf\xd7\xf7"
SIGN_IN_WORD = re.compile(rb"[" + LETTER + rb"][" + SIGN + rb"](?=[" + LETTER + rb"\x80-\xbf])")
CAPITAL_IN_WORD = re.compile(rb"[a-z\xdf-\xf6\xf8-\xff][\x8a\x8c\x8e\x9f\xc0-\xd6\xd8-\xde]")
UTF8_CHARACTER = re.compile(rb"[\xc2\xc3][\x80-\xbf]|\xe2\x80[\x80-\xbf]")  # the usual characters of Western texts
UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
HIGH_RUN = re.compile(rb"[\xc0-\xff]{3,}")
TURKISH_OR_ICELANDIC = re.compile(rb"[\xd0\xdd\xde\xf0\xfd\xfe]")  # Icelandic here, Turkish in Windows-1254
NEVER_TURKISH = re.compile(rb"[\xc1\xc6\xcd\xe1\xe6\xed]")  # a and i with acute accent, ae


def _is_western(blocks: Blocks, offset: int) -> bool:
    """Return whether input that is not UTF-8 (at `offset`) reads like a Western language in Windows-1252."""
    start = high = letters = high_letters = suspicious = turkish = not_turkish = sequences = in_sequences = 0
    for block in blocks():
        # Well-formed UTF-8 before the first bad byte: a damaged UTF-8 file, not Windows-1252.
        if start < offset and HIGH.search(block[: offset - start]):
            return False
        if UNDEFINED.search(block) or UTF8_CHARACTER.search(block):
            return False
        matches = UTF8_SEQUENCE.findall(block)
        sequences += len(matches)
        in_sequences += sum(map(len, matches))
        high += len(HIGH.findall(block))
        letters += len(LETTERS.findall(block))
        high_letters += len(HIGH_LETTERS.findall(block))
        suspicious += (
            len(SIGN_IN_WORD.findall(block)) + len(CAPITAL_IN_WORD.findall(block)) + len(HIGH_RUN.findall(block))
        )
        turkish += len(TURKISH_OR_ICELANDIC.findall(block))
        not_turkish += len(NEVER_TURKISH.findall(block))
        start += len(block)
    looks_turkish = turkish > 0.1 * high and not_turkish < 0.1 * turkish
    if sequences and sequences >= high - in_sequences:
        return False  # mostly well-formed UTF-8: a damaged UTF-8 file
    return high_letters <= 0.25 * letters and suspicious <= 0.02 * high and not looks_turkish
