"""The token store: token ids on disk, memory-mapped, in the layout that datatrove's `DocumentTokenizer` writes.

A store called NAME is three files: `NAME.ds`, the ids as raw little-endian uint16 (uint32 when the vocabulary has more
than 65,535 tokens), every document followed by the end token; `NAME.ds.index`, the position after each document's end
token as little-endian uint64; `NAME.json`, the header.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import convert_os_errors, sha256, sync, write_text
from glassformer.text.document_rows import DocumentPieces, PrefixRows

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizer

FORMAT = "glassformer token store 1"
BLOCK = 1 << 24  # bytes copied at once
Ids = npt.NDArray[np.unsignedinteger[Any]]


class DamagedStoreError(GlassError):
    """Error for a store whose files are missing, cut short or altered; the store must be made again."""


@dataclass(frozen=True)
class TokenStore:
    """Token ids on disk. The files are memory-mapped, so memory use does not grow with their size.

    Attributes:
        prefix: path prefix of the files.
        tokens: (length,) all ids, document after document, end tokens included.
        document_ends: (documents,) position after each document's end token.
        characters, bytes: size of the encoded text (bytes in UTF-8; document separators are not counted).
        unknown: number of unknown tokens.
        vocab_size, end_id: vocabulary size and end token of the tokenizer.
        tokenizer_digest: digest of the tokenizer.
        text_hash: SHA-256 over the SHA-256 of each document's text.
        sums: SHA-256 of the ids file and of the index file, by suffix.
    """

    prefix: Path
    tokens: Ids
    document_ends: npt.NDArray[np.uint64]
    characters: int
    bytes: int
    unknown: int
    vocab_size: int
    end_id: int
    tokenizer_digest: str
    text_hash: str
    sums: dict[str, str]
    _pieces: dict[int, DocumentPieces] = field(default_factory=dict, compare=False, repr=False)
    _prefixes: dict[int, PrefixRows] = field(default_factory=dict, compare=False, repr=False)
    _prefix_orders: dict[tuple[int, int], npt.NDArray[np.int64]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def open(cls, prefix: Path) -> TokenStore:
        """Open the store NAME = `prefix`.

        Raises:
            DamagedStoreError: a file is missing, the header is not valid, or a file is empty or differs from the header
                in size.
        """
        header = _read_header(prefix)
        try:
            dtype = np.dtype({"uint16": "<u2", "uint32": "<u4"}[header["dtype"]])
            _check_size(_ids_path(prefix), header["tokens"] * dtype.itemsize)
            _check_size(_index_path(prefix), header["documents"] * 8)
            return cls(
                prefix=prefix,
                tokens=np.memmap(_ids_path(prefix), dtype=dtype, mode="r"),
                document_ends=np.memmap(_index_path(prefix), dtype="<u8", mode="r"),
                **{name: header[name] for name in HEADER_FIELDS},
            )
        except MALFORMED as error:
            raise _damaged(prefix, f"its header is not valid ({error!r})") from None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def documents(self) -> int:
        """Return the number of documents."""
        return len(self.document_ends)

    @property
    def unknown_share(self) -> float:
        """Return the fraction of tokens that are unknown; end tokens are not counted."""
        return self.unknown / max(1, len(self.tokens) - self.documents)

    @property
    def recoverable_bytes(self) -> int | None:
        """Return the size of the text in bytes, to compute bits per byte; None if there are unknown tokens.

        An unknown token replaces any text outside the vocabulary, and the model gives a probability to the token, not
        to the text. The nats of the tokens are then only a lower bound on the nats of the text, and the bound falls as
        more of the text is unknown: a vocabulary of five words would look best. Bits per byte are therefore undefined.
        """
        return None if self.unknown else self.bytes

    def verify(self) -> None:
        """Read every byte and compare the files with the checksums in the header.

        Raises:
            DamagedStoreError: a file was altered.
        """
        for path in (_ids_path(self.prefix), _index_path(self.prefix)):
            with convert_os_errors(path):
                if sha256(path) != self.sums[path.suffix]:
                    raise _damaged(self.prefix, f"{path.name} was altered")

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each document, without its end token; (documents,)."""
        ends = np.array(self.document_ends, dtype=np.int64)
        ends[1:] -= ends[:-1].copy()
        return ends - 1

    def document(self, index: int) -> Ids:
        """Return the tokens of one document, without its end token.

        Raises:
            IndexError: there is no such document.
        """
        if not 0 <= index < self.documents:
            raise IndexError(index)
        start = int(self.document_ends[index - 1]) if index else 0
        return self.tokens[start : int(self.document_ends[index]) - 1]

    def pieces(self, context: int) -> DocumentPieces:
        """Return the documents cut into rows of at most `context` predictions; cached for each context."""
        if context not in self._pieces:
            self._pieces[context] = DocumentPieces(self.document_ends, context)
        return self._pieces[context]

    def prefixes(self, context: int) -> PrefixRows:
        """Return the rows of `data.windows` = prefixes; cached for each context."""
        if context not in self._prefixes:
            self._prefixes[context] = PrefixRows(self.document_ends, context)
        return self._prefixes[context]

    def prefix_order(self, context: int, seed: int) -> npt.NDArray[np.int64]:
        """Return the random order of `prefixes(context)`; cached for each context and seed."""
        if (context, seed) not in self._prefix_orders:
            self._prefix_orders[context, seed] = self.prefixes(context).order(seed)
        return self._prefix_orders[context, seed]

    def iter_text(self, tokenizer: Tokenizer, chunk_tokens: int = 1_000_000) -> Iterator[str]:
        """Yield the decoded documents in order. If the tokenizer is exact, they equal the encoded documents.

        Two documents are separated by one line end, unless the first of them ends with one. A document of more than
        `chunk_tokens` tokens comes in several strings, cut between characters.
        """
        start = 0
        ends_line = True
        for stop in self.document_ends:
            if not ends_line:
                yield "\n"
            for text in self._document_text(tokenizer, start, int(stop) - 1, chunk_tokens):
                yield text
                ends_line = text.endswith("\n")
            start = int(stop)

    def _document_text(self, tokenizer: Tokenizer, start: int, stop: int, chunk: int) -> Iterator[str]:
        if stop - start <= chunk:
            yield tokenizer.decode(self.tokens[start:stop].tolist())
            return
        if not tokenizer.exact:  # the text of a token may depend on its neighbours
            decoder = tokenizer.stream_decoder()
            for begin in range(start, stop, chunk):
                yield "".join(decoder.feed(id) for id in self.tokens[begin : min(begin + chunk, stop)].tolist())
            yield decoder.finish()
            return
        while start < stop:
            end = min(start + chunk, stop)
            while end < stop and _continues_character(tokenizer.token_bytes(int(self.tokens[end]))):
                end += 1
            yield tokenizer.decode(self.tokens[start:end].tolist())
            start = end


HEADER_FIELDS = ("characters", "bytes", "unknown", "vocab_size", "end_id", "tokenizer_digest", "text_hash", "sums")


class StoreWriter:
    """Writer of a token store, in constant memory. `close` completes the store."""

    def __init__(self, prefix: Path, tokenizer: Tokenizer) -> None:
        self.prefix = prefix
        self.tokenizer = tokenizer
        self.dtype = np.dtype("<u2" if tokenizer.vocab_size <= 65_535 else "<u4")
        self.tokens = self.documents = self.characters = self.bytes = self.unknown = 0
        self._text_hash = hashlib.sha256()
        self._file_hashes = {".ds": hashlib.sha256(), ".index": hashlib.sha256()}
        self._document_hash = hashlib.sha256()
        self._files: dict[str, IO[bytes]] = {
            ".ds": _ids_path(prefix).open("wb"),
            ".index": _index_path(prefix).open("wb"),
        }

    def add(self, texts: Sequence[str], ids: Sequence[Sequence[int]], lasts: Sequence[bool]) -> None:
        """Append pieces of documents: the text and the ids of each piece, and whether it ends its document."""
        flat: list[int] = []
        ends = array("Q")
        for text, piece_ids, last in zip(texts, ids, lasts, strict=True):
            flat.extend(piece_ids)
            encoded = text.encode("utf-8")
            self.characters += len(text)
            self.bytes += len(encoded)
            self._document_hash.update(encoded)
            if last:
                self._document_ended(self._document_hash.digest())
                self._document_hash = hashlib.sha256()
                flat.append(self.tokenizer.end_id)
                ends.append(self.tokens + len(flat))
        id_array = np.fromiter(flat, dtype=self.dtype, count=len(flat))
        if self.tokenizer.unknown_id is not None:
            self.unknown += int(np.count_nonzero(id_array == self.tokenizer.unknown_id))
        self.tokens += len(flat)
        self.documents += len(ends)
        self._write(".ds", id_array.tobytes())
        self._write(".index", np.array(ends, dtype="<u8").tobytes())

    def append(self, part: Path) -> None:
        """Append all documents of a store that a `PartWriter` with the same tokenizer wrote."""
        header = _read_header(part)
        with _ids_path(part).open("rb") as file:
            while block := file.read(BLOCK):
                self._write(".ds", block)
        ends = np.fromfile(_index_path(part), dtype="<u8") + np.uint64(self.tokens)
        self._write(".index", ends.astype("<u8").tobytes())
        self._text_hash.update(_digests_path(part).read_bytes())
        for name in ("tokens", "documents", "characters", "bytes", "unknown"):
            setattr(self, name, getattr(self, name) + header[name])

    def _document_ended(self, digest: bytes) -> None:
        self._text_hash.update(digest)

    def _write(self, suffix: str, data: bytes) -> None:
        self._files[suffix].write(data)
        self._file_hashes[suffix].update(data)

    def abandon(self) -> None:
        """Close the files without completing the store."""
        for file in self._files.values():
            file.close()

    def close(self) -> None:
        """Write everything to disk, the header last."""
        self.abandon()
        header = {
            "format": FORMAT,
            "dtype": self.dtype.name,
            "tokens": self.tokens,
            "documents": self.documents,
            "characters": self.characters,
            "bytes": self.bytes,
            "unknown": self.unknown,
            "vocab_size": self.tokenizer.vocab_size,
            "end_id": self.tokenizer.end_id,
            "tokenizer_digest": self.tokenizer.digest,
            "text_hash": self._text_hash.hexdigest(),
            "sums": {suffix: digest.hexdigest() for suffix, digest in self._file_hashes.items()},
        }
        sync(_ids_path(self.prefix))
        sync(_index_path(self.prefix))
        write_text(_header_path(self.prefix), json.dumps(header, indent=1) + "\n")


class PartWriter(StoreWriter):
    """Writer of a store for `StoreWriter.append`: the store may be empty, and has an additional file NAME.digests."""

    def __init__(self, prefix: Path, tokenizer: Tokenizer) -> None:
        super().__init__(prefix, tokenizer)
        self._files["digests"] = _digests_path(prefix).open("wb")

    def _document_ended(self, digest: bytes) -> None:
        self._files["digests"].write(digest)


def _ids_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".ds")


def _index_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".ds.index")


def _digests_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".digests")


def _header_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".json")


def _continues_character(token: bytes) -> bool:
    """Return whether a token's first byte is inside a UTF-8 character."""
    return bool(token) and 0x80 <= token[0] < 0xC0


def _damaged(prefix: Path, reason: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"the token store {prefix} is damaged: {reason}", "Prepare the text again from its source."
    )


def _read_header(prefix: Path) -> dict[str, Any]:
    path = _header_path(prefix)
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _damaged(prefix, f"{path.name} is missing") from None
    except MALFORMED:
        raise _damaged(prefix, f"{path.name} is not JSON") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _damaged(prefix, f"{path.name} is not the header of a token store")
    return header


def _check_size(path: Path, expected: int) -> None:
    size = path.stat().st_size if path.is_file() else -1
    if size != expected or not size:
        actual = "is missing" if size < 0 else f"has {size:,} bytes"
        raise _damaged(path, f"{path.name} {actual}, but {expected:,} bytes were written")
