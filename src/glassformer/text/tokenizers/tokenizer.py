"""`Tokenizer`: text to ids and back, in all seven schemes, on Hugging Face `tokenizers`."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import regex
import tokenizers

from glassformer.base.config import TOKENIZER_KINDS
from glassformer.base.errors import GlassError
from glassformer.base.files import write_text
from glassformer.text.tokenizers import layout
from glassformer.text.tokenizers.pieces import cut_before, pieces, utf8
from glassformer.text.tokenizers.roles import roles_of

PIECE = 32_768  # characters given to Hugging Face at once
GROUP = 32 * PIECE  # characters per batch: its result objects take some hundred bytes a token while they live
GRAPHEME = regex.compile(r"\X")
CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(0x7F, 0xA0))}


class _Lookup(dict[str, int]):
    """Symbol to id; every symbol that is not there has the unknown id."""

    def __init__(self, vocabulary: dict[str, int], unknown_id: int) -> None:
        super().__init__(vocabulary)
        self.unknown_id = unknown_id

    def __missing__(self, symbol: str) -> int:
        return self.unknown_id


class StreamDecoder:
    """Text from tokens as they come, in whole characters only.

    What `feed` and `finish` return, joined, equals `Tokenizer.decode` of all the tokens fed.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer.drops_space

    def feed(self, id: int) -> str:
        """Return the characters that a token completes; none if it holds only a part of one."""
        data = self._tokenizer.token_bytes(id)
        if self._at_start and data:
            self._at_start = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return U+FFFD if the last character was never completed, and otherwise an empty text."""
        return self._decoder.decode(b"", True)


class Tokenizer:
    """One trained tokenizer; never changes. Made by `train_tokenizer` or `Tokenizer.load`.

    Attributes:
        kind: the scheme (`config.TOKENIZER_KINDS`).
        vocab_size: number of tokens, special ones included; ids are 0 to vocab_size - 1.
        end_id: ends a document, and stands before a document's first token. No text encodes to it.
        start_id: stands before a text's first token where something must; the end token, unless the tokenizer was
            imported and has another one.
        special: ids that stand for no text: special tokens, the unknown one, rows without a token. In tokenizers of
            ours they are the last ids; in imported ones they are anywhere.
        padding_id: fills rows, and no text encodes to it; None where the tokenizer has none.
        frame: what stands around a text that is read, where an imported tokenizer says it; see `frames.frame_of`.
        target_start: the ids that a text begins with that an encoder-decoder writes.
        more_ends: further ids that end a text that is written, where an imported tokenizer's model has them.
        drops_space: the space that the first token carries is no part of the text.
        mask_id: stands for a token that is hidden and to be filled in; None where the tokenizer has none. No text
            encodes to it.
        unknown_id: stands for a symbol that the vocabulary lacks; None where every text can be written.
        exact: True where `decode(encode(text)) == text` for every Unicode text. Elsewhere the round trip is exact for
            text of known symbols (characters, graphemes, words), or spaces change (wordpiece: one space between
            words and around punctuation), or the text is normalised first, if the settings said so.
        normalization: the Unicode form applied first ("none", "nfc", …).
        lowercase: whether text is lower-cased first.
        digest: SHA-256 of what `save` writes, in hexadecimal.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        """Take the contents of a `tokenizer.json` as `layout.document` makes them."""
        facts = document["model"][layout.FACTS]
        self.kind: str = facts["kind"]
        self.normalization: str = facts["normalization"]
        self.lowercase: bool = facts["lowercase"]
        self._saved = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
        self.digest = hashlib.sha256(self._saved.encode("utf-8")).hexdigest()
        plain = {key: value for key, value in document["model"].items() if key != layout.FACTS}
        self._hf: tokenizers.Tokenizer = tokenizers.Tokenizer.from_str(json.dumps({**document, "model": plain}))
        self._hf.encode_special_tokens = True  # text that spells a special token stays text
        roles = roles_of(document)
        self.vocab_size = roles.size
        self.start_id = roles.start
        self.end_id = roles.end
        self.mask_id = roles.mask
        self.unknown_id = roles.unknown
        self.padding_id = roles.padding
        self.special = roles.special
        self.frame = roles.frame
        self.target_start = roles.target_start
        self.more_ends = roles.more_ends
        self._bytes = roles.bytes
        self.drops_space = roles.drops_space
        self._changes_text = self._hf.normalizer is not None
        self.exact = not self._changes_text and self.kind in ("bytes", "bpe", "unigram") and "roles" not in facts
        self._lookup: _Lookup | None = None
        if self.kind in ("characters", "graphemes") and self.unknown_id is not None:
            self._lookup = _Lookup(plain["vocab"], self.unknown_id)

    @cached_property
    def text_ids(self) -> npt.NDArray[np.int64]:
        """The ids that stand for text, in ascending order."""
        return np.array([id for id in range(self.vocab_size) if id not in self.special], dtype=np.int64)

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """The id of each special token, by its name."""
        names = {id: self._hf.id_to_token(id) for id in sorted(self.special)}
        return {name: id for id, name in names.items() if name}

    @property
    def takes_space_before(self) -> frozenset[str]:
        """Return the names of tokens that absorb the white space before them in a text."""
        return frozenset(token.content for token in self._hf.get_added_tokens_decoder().values() if token.lstrip)

    @property
    def takes_space_after(self) -> frozenset[str]:
        """Return the names of tokens that absorb the white space after them in a text."""
        return frozenset(token.content for token in self._hf.get_added_tokens_decoder().values() if token.rstrip)

    def encode(self, text: str) -> list[int]:
        """The text's ids; never a special one but `unknown_id`.

        Raises:
            GlassError: the text is not valid Unicode (a lone surrogate).
        """
        return self.encode_many([text])[0]

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """`encode` of each text, faster: in parallel, and in memory that does not grow with the longest text."""
        if self.kind in ("characters", "graphemes", "bytes"):
            return [self._encode_in_python(text) for text in texts]
        for text in texts:
            utf8(text)
        result: list[list[int]] = [[] for _ in texts]
        for group in self._groups(texts):
            encodings = self._hf.encode_batch_fast([piece for _, piece in group], add_special_tokens=False)
            for (index, _), encoding in zip(group, encodings, strict=True):
                result[index] += encoding.ids
        return result

    def _normalized(self, text: str) -> str:
        return "".join(self._hf.normalizer.normalize_str(piece) for piece in pieces(text, PIECE))

    def _encode_in_python(self, text: str) -> list[int]:
        data = utf8(text)
        if self._changes_text:
            text = self._normalized(text)
            data = utf8(text)
        if self._lookup is None:
            return list(data)
        symbols = GRAPHEME.findall(text) if self.kind == "graphemes" else text
        return list(map(self._lookup.__getitem__, symbols))

    def _groups(self, texts: list[str]) -> Iterator[list[tuple[int, str]]]:
        """The texts cut into pieces, each with its text's index, in batches of about `GROUP` characters."""
        group: list[tuple[int, str]] = []
        size = 0
        for index, text in enumerate(texts):
            for piece in pieces(text, PIECE):
                group.append((index, piece))
                size += len(piece)
                if size >= GROUP:
                    yield group
                    group = []
                    size = 0
        if group:
            yield group

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids: special tokens left out, U+FFFD for an unknown symbol and for invalid UTF-8.

        Raises:
            GlassError: an id is outside the vocabulary.
        """
        numbers = [int(id) for id in ids]
        if numbers:
            self._check(min(numbers))
            self._check(max(numbers))
        text = b"".join([self._bytes[number] for number in numbers]).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.drops_space and self._first_has_space(numbers) else text

    def _first_has_space(self, numbers: list[int]) -> bool:
        return next((self._bytes[n] for n in numbers if self._bytes[n]), b"").startswith(b" ")

    def _check(self, id: int) -> None:
        if not 0 <= id < self.vocab_size:
            raise GlassError(
                f"token {id} is outside the vocabulary", f"Ids of this tokenizer go from 0 to {self.vocab_size - 1}."
            )

    def token_bytes(self, id: int) -> bytes:
        """The bytes one token stands for; none for the end and mask tokens, U+FFFD's for the unknown one.

        `decode` joins them and reads them as UTF-8. WordPiece: a token that starts a word carries the space before
        it, and `decode` drops the first token's. All other schemes: plain joining, nothing added or dropped.
        """
        self._check(id)
        return self._bytes[id]

    def token_text(self, id: int) -> str:
        r"""A printable form of one token: part of a character as `\xe0`, a newline as `\n`, special ones by name."""
        self._check(id)
        if id in self.special:
            return str(self._hf.id_to_token(id) or f"<{id}>")
        return self._bytes[id].decode("utf-8", "backslashreplace").translate(CONTROL)

    def stream_decoder(self) -> StreamDecoder:
        """A new decoder for one stream of tokens."""
        return StreamDecoder(self)

    def safe_cut(self, text: str, near: int) -> int:
        """The largest position <= `near` (characters) where cutting keeps the tokens; 0 where there is none.

        `encode(text[:cut]) + encode(text[cut:]) == encode(text)`. See `pieces.is_safe` for what counts.
        """
        if near <= 0 or near >= len(text):
            return max(0, min(near, len(text)))
        if self.kind in ("characters", "bytes") and not self._changes_text:
            return near
        return cut_before(text, 0, near)

    def __repr__(self) -> str:
        return f"Tokenizer({self.description()})"

    def description(self) -> str:
        """One line for people: scheme, size, what happens to the text."""
        parts = [f"{self.kind}, {self.vocab_size:,} tokens"]
        parts += [self.normalization.upper()] if self.normalization != "none" else []
        parts += ["lower-cased"] if self.lowercase else []
        if self.exact:
            parts.append("every text comes back exactly")
        elif self.kind == "wordpiece":
            parts.append("spaces are not kept exactly")
        if self.unknown_id is not None:
            parts.append(f"unseen symbols become {self.token_text(self.unknown_id)}")
        return "; ".join(parts)

    def save(self, path: Path) -> None:
        """Write the one file that `load`, and Hugging Face's `Tokenizer.from_file`, read."""
        write_text(path, self._saved)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a `tokenizer.json` that `save` wrote.

        Raises:
            GlassError: there is no such file, another program wrote it, or it was altered or cut short since.
        """
        try:
            document = json.loads(path.read_bytes().decode("utf-8"))
        except OSError as error:
            raise GlassError(
                f"{path} cannot be read: {error.strerror}", "Give the path of a tokenizer.json file."
            ) from None
        except (ValueError, RecursionError) as error:
            raise GlassError(
                f"{path} is damaged: {error}", "Take the file from a backup, or train the tokenizer again."
            ) from None
        _check_document(document, path)
        try:
            return cls(document)
        except Exception as error:  # the library raises nothing narrower
            raise GlassError(
                f"{path} cannot be used by tokenizers {tokenizers.__version__}: {error}",
                "Install the version of tokenizers that constraints.txt names.",
            ) from None


def _check_document(document: Any, path: Path) -> None:
    model = document.get("model") if isinstance(document, dict) else None
    facts = model.get(layout.FACTS) if isinstance(model, dict) else None
    if not isinstance(facts, dict) or facts.get("kind") not in TOKENIZER_KINDS:
        raise GlassError(f"{path} was not written by glassformer", "Give the tokenizer.json of a run folder.")
    if facts.get("format") != layout.FORMAT:
        raise GlassError(
            f"{path} has format {facts.get('format')!r}; this version reads format {layout.FORMAT}",
            "Use the version of glassformer that wrote it.",
        )
    if facts.get("sha256") != layout.checksum(document):
        raise GlassError(
            f"{path} was altered after it was written", "Take the file from a backup, or train the tokenizer again."
        )
