"""`Tokenizer`: convert text to ids and back. Three schemes run in Python, four in Hugging Face `tokenizers`."""

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

from glassformer.base.config import CONVERSATIONS, LABELLED, PAIRS, TOKENIZER_KINDS, Config
from glassformer.base.errors import GlassError
from glassformer.base.files import write_text
from glassformer.text.tokenizers import layout
from glassformer.text.tokenizers.frames import Frame
from glassformer.text.tokenizers.pieces import cut_before, pieces, utf8
from glassformer.text.tokenizers.roles import vocabulary_of

PIECE = 32_768  # characters passed to Hugging Face as one text
GROUP = 32 * PIECE  # characters per batch; its result objects need about a hundred bytes per token
GRAPHEME = regex.compile(r"\X")
CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(0x7F, 0xA0))}


class _Lookup(dict[str, int]):
    """A map from symbols to ids, in which every missing symbol has the unknown id."""

    def __init__(self, vocabulary: dict[str, int], unknown_id: int) -> None:
        super().__init__(vocabulary)
        self.unknown_id = unknown_id

    def __missing__(self, symbol: str) -> int:
        return self.unknown_id


class StreamDecoder:
    """An incremental decoder that turns a stream of tokens into whole characters.

    The joined results of `feed` and `finish` equal `Tokenizer.decode` of all tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer.drops_space

    def feed(self, id: int) -> str:
        """Return the characters that a token completes; empty if it completes none."""
        data = self._tokenizer.token_bytes(id)
        if self._at_start and data:
            self._at_start = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return U+FFFD if the last character is incomplete, and otherwise an empty string."""
        return self._decoder.decode(b"", True)


class Tokenizer:
    """A trained or imported tokenizer, which is immutable; see `train_tokenizer` and `Tokenizer.load`.

    Attributes:
        kind: the scheme (`config.TOKENIZER_KINDS`).
        vocab_size: number of tokens, special ones included; ids are 0 to vocab_size - 1.
        end_id: id of the end token, which ends a document. No text encodes to it.
        start_id: id of the token before a text's first token, if one is needed: the end token, unless an imported
            tokenizer has a separate start token.
        special: ids that represent no text: special tokens, the unknown token, and embedding rows without a token. They
            are the last ids, except in imported tokenizers, which may have them anywhere.
        padding_id: id of the padding token, to which no text encodes; None if there is none.
        frame: ids around an input text, if an imported tokenizer defines them; see `frame_of`.
        target_start: ids at the beginning of a text that an encoder-decoder model generates.
        extra_end_ids: further ids that end a generated text, if the model of an imported tokenizer has them.
        drops_space: whether decoding drops the space before the first token.
        mask_id: id of the mask token, by which masked tokens are replaced, or None. No text encodes to it.
        unknown_id: id of the unknown token, which replaces symbols outside the vocabulary; None if every text can be
            encoded.
        exact: whether `decode(encode(text)) == text` is known to hold for every Unicode text. If not, the round trip is
            exact only for text of known symbols (characters, graphemes, words), or spaces change (wordpiece: one space
            between words and around punctuation), or the settings normalize the text first, or the tokenizer is
            imported.
        normalization: the Unicode form applied first ("none", "nfc", …).
        lowercase: whether text is lower-cased first.
        digest: SHA-256 of the file that `save` writes, in hexadecimal.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        """Build the tokenizer from the contents of a `tokenizer.json`.

        Args:
            document: the contents, as `layout.build_tokenizer_json` or `roles.convert_tokenizer_json` returns them.
        """
        facts = document["model"][layout.FACTS]
        self.kind: str = facts["kind"]
        self.normalization: str = facts["normalization"]
        self.lowercase: bool = facts["lowercase"]
        self._json = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
        self.digest = hashlib.sha256(self._json.encode("utf-8")).hexdigest()
        model = {key: value for key, value in document["model"].items() if key != layout.FACTS}
        self._hf: tokenizers.Tokenizer = tokenizers.Tokenizer.from_str(json.dumps({**document, "model": model}))
        self._hf.encode_special_tokens = True  # text that spells a special token stays text
        vocabulary = vocabulary_of(document)
        self.vocab_size = vocabulary.size
        self.start_id = vocabulary.start
        self.end_id = vocabulary.end
        self.mask_id = vocabulary.mask
        self.unknown_id = vocabulary.unknown
        self.padding_id = vocabulary.padding
        self.special = vocabulary.special
        self.frame = vocabulary.frame
        self.target_start = vocabulary.target_start
        self.extra_end_ids = vocabulary.extra_end_ids
        self._bytes = vocabulary.bytes
        self.drops_space = vocabulary.drops_space
        self._changes_text = self._hf.normalizer is not None
        self.exact = not self._changes_text and self.kind in ("bytes", "bpe", "unigram") and "roles" not in facts
        self._lookup: _Lookup | None = None
        if self.kind in ("characters", "graphemes") and self.unknown_id is not None:
            self._lookup = _Lookup(model["vocab"], self.unknown_id)

    @cached_property
    def text_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids that represent text, in ascending order."""
        return np.array([id for id in range(self.vocab_size) if id not in self.special], dtype=np.int64)

    @cached_property
    def all_token_texts(self) -> str:
        """Return the decoded texts of all tokens, separated by line ends."""
        return "\n".join(self.decode([id]) for id in range(self.vocab_size))

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """Return the id of each special token by its name."""
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
        """Return the ids of a text, none of which is special except `unknown_id`.

        Raises:
            GlassError: the text is not valid Unicode (a lone surrogate).
        """
        return self.encode_many([text])[0]

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text. Most schemes run in parallel, and working memory is bounded for long texts.

        Raises:
            GlassError: a text is not valid Unicode (a lone surrogate).
        """
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
        """Yield batches of about `GROUP` characters: pieces of the texts, each with its text's index."""
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
        """Return the text of the ids, without special tokens; unknown symbols and invalid UTF-8 become U+FFFD.

        Raises:
            GlassError: an id is outside the vocabulary.
        """
        numbers = [int(id) for id in ids]
        if numbers:
            self._check_id(min(numbers))
            self._check_id(max(numbers))
        text = b"".join([self._bytes[number] for number in numbers]).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.drops_space and self._first_has_space(numbers) else text

    def _first_has_space(self, numbers: list[int]) -> bool:
        return next((self._bytes[n] for n in numbers if self._bytes[n]), b"").startswith(b" ")

    def _check_id(self, id: int) -> None:
        if not 0 <= id < self.vocab_size:
            raise GlassError(f"token {id} is outside the vocabulary", f"Give an id from 0 to {self.vocab_size - 1}.")

    def token_bytes(self, id: int) -> bytes:
        """Return the bytes of one token: empty for special tokens, and the bytes of U+FFFD for the unknown token.

        `decode` joins the bytes and decodes them as UTF-8; if `drops_space`, it drops a space at the beginning. In
        WordPiece, a token that starts a word includes the space before it.

        Raises:
            GlassError: the id is outside the vocabulary.
        """
        self._check_id(id)
        return self._bytes[id]

    def token_text(self, id: int) -> str:
        r"""Return a printable form of one token; an incomplete character is shown as bytes (`\xe0`), a newline as `\n`.

        Raises:
            GlassError: the id is outside the vocabulary.
        """
        self._check_id(id)
        if id in self.special:
            return str(self._hf.id_to_token(id) or f"<{id}>")
        return self._bytes[id].decode("utf-8", "backslashreplace").translate(CONTROL)

    def stream_decoder(self) -> StreamDecoder:
        """Return a new decoder for one stream of tokens."""
        return StreamDecoder(self)

    def safe_cut(self, text: str, near: int) -> int:
        """Return the last position <= `near`, in characters, at which a cut is known to change no token.

        `encode(text[:cut]) + encode(text[cut:]) == encode(text)`. See `pieces.is_safe` for the rule. Return 0 if there
        is no such position.
        """
        if near <= 0 or near >= len(text):
            return max(0, min(near, len(text)))
        if self.kind in ("characters", "bytes") and not self._changes_text:
            return near
        return cut_before(text, 0, near)

    def __repr__(self) -> str:
        return f"Tokenizer({self.description()})"

    def description(self) -> str:
        """Return a one-line description: the scheme, the vocabulary size, and how text is changed."""
        parts = [f"{self.kind}, {self.vocab_size:,} tokens"]
        parts += [self.normalization.upper()] if self.normalization != "none" else []
        parts += ["lower-cased"] if self.lowercase else []
        if self.exact:
            parts.append("every text is decoded exactly")
        elif self.kind == "wordpiece":
            parts.append("spaces are not decoded exactly")
        if self.unknown_id is not None:
            parts.append(f"unseen symbols become {self.token_text(self.unknown_id)}")
        return "; ".join(parts)

    def save(self, path: Path) -> None:
        """Write the `tokenizer.json` that `load` and Hugging Face's `Tokenizer.from_file` read."""
        write_text(path, self._json)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a `tokenizer.json` that `save` wrote.

        Raises:
            GlassError: the file cannot be read, was written by another program, has another format version, was altered
                or cut short after it was written, or cannot be used by the installed `tokenizers`.
        """
        try:
            document = json.loads(path.read_bytes().decode("utf-8"))
        except OSError as error:
            raise GlassError(
                f"{path} cannot be read: {error.strerror}", "Give the path of a tokenizer.json file."
            ) from None
        except (ValueError, RecursionError) as error:
            raise GlassError(
                f"{path} is damaged: {error}", "Restore the file from a backup, or train the tokenizer again."
            ) from None
        _check_document(document, path)
        try:
            return cls(document)
        except Exception as error:  # the library raises no narrower exception
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
            f"{path} was altered after it was written", "Restore the file from a backup, or train the tokenizer again."
        )


def frame_of(tokenizer: Tokenizer, config: Config) -> Frame:
    """Return the frame of the texts that a run's model reads (for an encoder-decoder, the frame of its sources).

    Args:
        tokenizer: tokenizer of the text that the model reads.
        config: settings of the run.
    """
    if tokenizer.frame is not None:
        return tokenizer.frame
    if config.train.task in PAIRS:
        return Frame(after=(tokenizer.end_id,))
    if config.train.task in (*LABELLED, *CONVERSATIONS) or config.data.windows == "documents":
        return Frame(before=(tokenizer.start_id,))
    return Frame()
