"""Cut a source into its documents, in bounded memory: a document too long to hold comes in several pieces."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.cleaning import cleaned
from glassformer.text.duplicates import Repeats, Sketch
from glassformer.text.reading import Source
from glassformer.text.tally import Tally

LINE_END = re.compile(r"\r\n|\n|\r")
BLANK_LINES = re.compile(r"(?>\r\n|\n|\r)(?:[ \t]*(?>\r\n|\n|\r))+")  # atomic: \r\n is never two line ends
HELD = 2_000_000  # characters of one document kept in memory before it is passed on in pieces
MOST_MARKS = 8_000_000  # documents whose marks are kept to count duplicates (64 MB)
BUCKETS = 1 << 16
REPEATED = {"exact": "repeated documents", "near": "nearly repeated documents"}


class Piece(NamedTuple):
    """Some text of document `number` (counted over all documents, also those a filter leaves out)."""

    number: int
    text: str
    first: bool
    last: bool


class KeptPiece(NamedTuple):
    """A piece of a document that no filter left out. `start`: characters before the document; `mark`: its hash."""

    text: str
    start: int
    first: bool
    last: bool
    mark: int


@dataclass
class Facts:
    """Facts of a whole document: its size in characters and words, and a hash of its text.

    `bands`: where near duplicates are looked for, the hashes that a document like it shares (see `Sketch`).
    """

    characters: int = 0
    words: int = 0
    mark: int = 0
    bands: bytes = b""


@dataclass
class Survey:
    """Results of one pass over all documents; everything here counts kept documents unless said otherwise."""

    documents: int = 0
    characters: int = 0
    starts: array[int] = field(default_factory=lambda: array("Q"))
    """The number of characters before each document; with very many documents, before every `start_step`-th one."""
    start_step: int = 1
    last_length: int = 0
    tally: Tally = field(default_factory=Tally)
    large: dict[int, Facts] = field(default_factory=dict)
    """Documents that come in several pieces, by index: they cannot be judged from one piece."""
    marks: array[int] = field(default_factory=lambda: array("Q"))
    """The hashes of the first documents, in order."""
    bucket_documents: array[int] = field(default_factory=lambda: array("Q", bytes(8 * BUCKETS)))
    bucket_characters: array[int] = field(default_factory=lambda: array("Q", bytes(8 * BUCKETS)))
    """Documents and characters by the highest 16 bits of the hash: enough to place a random split."""
    repeated: bytes = b""
    """A byte for each document, 1 where it repeats an earlier one; empty where nobody asked."""

    @property
    def left_out(self) -> Counter[str]:
        """Return how many documents and rows were left out, by reason."""
        return self.tally.left_out

    def add(self, index: int, facts: Facts, whole: bool, data: DataConfig) -> bool:
        """Count document `index`, which came in one piece or not; returns whether it is kept."""
        if not whole:
            self.large[index] = facts
        reason = why_left_out(facts, data)
        if not reason and self.repeats(index):
            reason = REPEATED[data.duplicates]
        if reason:
            self.left_out[reason] += 1
            return False
        self._add_start()
        self.last_length = facts.characters
        self.documents += 1
        self.characters += facts.characters
        self.bucket_documents[facts.mark >> 48] += 1
        self.bucket_characters[facts.mark >> 48] += facts.characters
        if len(self.marks) < MOST_MARKS:
            self.marks.append(facts.mark)
        return True

    def _add_start(self) -> None:
        """Record where the next document starts; if there are too many starts, drop every second one."""
        if self.documents % self.start_step == 0:
            self.starts.append(self.characters)
        if len(self.starts) > MOST_MARKS:
            self.starts = self.starts[::2]
            self.start_step *= 2

    @property
    def last_start(self) -> int:
        """Return the number of characters before the last document."""
        return self.characters - self.last_length

    def repeats(self, index: int) -> bool:
        """Return whether document `index`, kept for its size, is left out because it repeats an earlier one."""
        return bool(self.repeated and self.repeated[index])

    def refuse_nothing(self, name: str) -> None:
        """Raise a `GlassError` if the source of this name has no document that is kept."""
        if not self.documents:
            reasons = ", ".join(counted(count, reason) for reason, count in self.left_out.items())
            raise GlassError(
                f"{name} holds no text" + (f": left out {reasons}" if reasons else ""),
                "Give a source with some text in it, or loosen data.min_words and data.max_words.",
            )


def pieces(source: Source, data: DataConfig, tally: Tally) -> Iterator[Piece]:
    """All documents in order: files, paragraphs or lines of plain text, rows of tables, items of a generated corpus.

    The ends of lines and the blank lines between paragraphs are not part of these documents; everything else is, as
    it stands in the source. Lines and paragraphs of white space alone are no documents. With `data.clean` each is
    cleaned.
    """
    index = 0
    for texts in _split_texts(source, data, tally):
        first = True
        if data.clean:
            texts = cleaned(texts)
        for text, last in texts:
            yield Piece(index, text, first, last)
            first = last
            index += last


def first_documents(source: Source, data: DataConfig) -> Iterator[str]:
    """Yield the text of each document that is not left out for its size; of a very long one only its first piece."""
    for piece in pieces(source, data, Tally()):
        if piece.first and not why_left_out(Facts(words=len(piece.text.split())), data):
            yield piece.text


def _split_texts(source: Source, data: DataConfig, tally: Tally) -> Iterator[Iterator[tuple[str, bool]]]:
    if source.corpus is not None:
        from glassformer.corpora import find_text_corpus

        yield ((text, True) for text in find_text_corpus(source.corpus).documents(data.size, data.seed))
    for file in source.files:
        if file.format != "text":
            yield ((text, True) for text in file.texts(tally))
        elif data.document == "file":
            yield _whole(file.text())
        else:
            yield _separated(file.text(), LINE_END if data.document == "line" else BLANK_LINES)


def _whole(chunks: Iterable[str]) -> Iterator[tuple[str, bool]]:
    held: str | None = None
    for chunk in chunks:
        if held is not None:
            yield held, False
        held = chunk
    yield held or "", True


def _separated(chunks: Iterable[str], separator: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """Cut at `separator`; a part longer than HELD is passed on in several pieces."""
    carry = ""
    begun = False
    for chunk in chunks:
        carry += chunk
        solid = len(carry.rstrip(" \t\r\n"))  # white space at the end may be the beginning of a separator
        if len(carry) - solid > HELD:
            solid = len(carry)  # ... but not so much of it: then it may stay with the document before it
        *whole, rest = separator.split(carry[:solid])
        carry = rest + carry[solid:]
        for text in whole:
            yield from _part(text, begun)
            begun = False
        if len(rest) > HELD:
            yield (rest if begun else rest.lstrip("\r\n")), False
            carry = carry[len(rest) :]
            begun = True
    *whole, rest = separator.split(carry)
    for text in (*whole, rest.rstrip("\r\n")):
        yield from _part(text, begun)
        begun = False


def _part(text: str, begun: bool) -> Iterator[tuple[str, bool]]:
    """A part's end. White space alone between two separators is no document."""
    if begun:
        yield text, True
    elif (stripped := text.strip("\r\n")) and not stripped.isspace():
        yield stripped, True


def mark_of(text: str, seed: int) -> int:
    """64 bits of a hash of a document's text, keyed by `seed`: equal texts have equal marks."""
    return int.from_bytes(_hasher(seed, text.encode("utf-8")).digest(), "little")


def _hasher(seed: int, text: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(text, digest_size=8, key=(seed % (1 << 64)).to_bytes(8, "little"))


def survey(source: Source, data: DataConfig) -> Survey:
    """Read everything once and count; once more before that where repeated documents are to be left out.

    Raises:
        GlassError: nothing is left to train on.
    """
    found = Survey()
    if data.duplicates != "keep":
        repeats = Repeats()
        for facts, index, _ in facts_of(pieces(source, data, Tally()), data):
            if not why_left_out(facts, data):
                repeats.add(index, facts.mark, facts.bands)
        found.repeated = repeats.found()
    for facts, index, whole in facts_of(pieces(source, data, found.tally), data, bands=False):
        found.add(index, facts, whole, data)
    found.refuse_nothing(source.name)
    return found


def facts_of(
    all_pieces: Iterable[Piece], data: DataConfig, bands: bool | None = None
) -> Iterator[tuple[Facts, int, bool]]:
    """Yield the facts of each document, its index, and whether it came in one piece.

    Args:
        all_pieces: of the documents.
        data: settings; `min_words` and `max_words` say whether words are counted.
        bands: whether `Facts.bands` is wanted; unset: where `data.duplicates` is near.
    """
    counting = data.min_words > 0 or data.max_words is not None
    near = data.duplicates == "near" if bands is None else bands
    facts = Facts()
    hasher = _hasher(data.seed)
    in_word = False
    sketch = Sketch() if near else None
    for number, text, first, last in all_pieces:
        if first:
            facts = Facts()
            hasher = _hasher(data.seed)
            in_word = False
            sketch = Sketch() if near else None
        facts.characters += len(text)
        hasher.update(text.encode("utf-8"))
        if sketch is not None:
            sketch.read(text)
        if counting or not (first and last):
            # A word that goes on from the piece before is counted once.
            facts.words += len(text.split()) - (in_word and not text[:1].isspace() and bool(text))
            in_word = not text[-1].isspace() if text else in_word
        else:
            facts.words = int(bool(text) and not text.isspace())
        if last:
            facts.mark = int.from_bytes(hasher.digest(), "little")
            facts.bands = sketch.bands(facts.mark) if sketch is not None else b""
            yield facts, number, first


def why_left_out(facts: Facts, data: DataConfig) -> str:
    """Why a document is left out for its size, in words; empty where it is kept."""
    if facts.words == 0:
        return "empty documents"
    if facts.words < data.min_words:
        return f"documents with fewer than {data.min_words} words"
    if data.max_words is not None and facts.words > data.max_words:
        return f"documents with more than {data.max_words} words"
    return ""


def kept_pieces(source: Source, data: DataConfig, found: Survey, marks: bool) -> Iterator[KeptPiece]:
    """The documents that the survey counted, again and in the same order; `mark` is 0 unless `marks`."""
    return kept(pieces(source, data, Tally()), data, found, marks)


def kept(
    all_pieces: Iterable[Piece], data: DataConfig, found: Survey, marks: bool, start: int = 0
) -> Iterator[KeptPiece]:
    """Yield the pieces that are kept. `start`: characters of kept documents before them."""
    length = 0
    counting = data.min_words > 0 or data.max_words is not None
    keeping = True
    mark = 0
    for index, text, first, last in all_pieces:
        if first:
            start += length
            facts = found.large.get(index)
            if facts is None:
                words = len(text.split()) if counting else int(bool(text) and not text.isspace())
                facts = Facts(len(text), words, mark_of(text, data.seed) if marks else 0)
            keeping = not why_left_out(facts, data) and not found.repeats(index)
            mark = facts.mark
            length = facts.characters if keeping else 0
        if keeping:
            yield KeptPiece(text, start, first, last, mark)
