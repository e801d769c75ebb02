"""Convert a tokenizer to GGUF's fields: tokens, merges, and the name of the pre-tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.text.tokenizers import layout

PRE = "qwen35"
"""llama.cpp's name for the pre-tokenizer in `layout.WORD_PIECES`."""
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
"""Token types of GGUF."""
NEVER = layout.byte_letters()[0xFF]
"""The letter for byte 0xFF, which valid UTF-8 never contains."""


@dataclass(frozen=True)
class Tokens:
    """Tokenizer fields of a GGUF file.

    Attributes:
        tokens: tokens in id order, spelled with one letter for each byte (`layout.byte_letters`); for special tokens,
            their names.
        token_types: type of each token: `NORMAL`, `UNKNOWN` or `CONTROL`.
        merges: merges as "left right", in order of priority.
        end_id: the token that ends a document.
        unknown_id: the token for symbols outside the vocabulary; None if every text can be encoded.
        start_id: the start token, which may precede a text; None: the end token.
        answer_end_id: the token that ends a chat answer; None: the end token.
    """

    tokens: list[str]
    token_types: list[int]
    merges: list[str]
    end_id: int
    unknown_id: int | None = None
    start_id: int | None = None
    answer_end_id: int | None = None

    @property
    def ends(self) -> frozenset[int]:
        """Return the tokens that end a text."""
        return frozenset({self.end_id, self.end_id if self.answer_end_id is None else self.answer_end_id})


def read_tokens(path: Path) -> Tokens:
    """Read the tokenizer of a run, and convert it to GGUF's fields.

    Raises:
        GlassError: llama.cpp cannot load the tokenizer, or would tokenize text differently.
    """
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model = document["model"]
    facts = model[layout.FACTS]
    kind = facts["kind"]
    remedy = "Nearest: a run trained with --set tokenizer.kind=bpe (byte-level)."
    if kind not in ("bpe", "characters"):
        raise GlassError(f"GGUF cannot express this tokenizer: tokenizer.kind = {kind}", remedy)
    if document["normalizer"] is not None:
        name = "lowercase = true" if facts["lowercase"] else f"normalization = {facts['normalization']}"
        raise GlassError(
            "GGUF cannot express this tokenizer: llama.cpp does not normalize text for byte-level BPE, "
            f"and this run has tokenizer.{name}",
            "Nearest: a run trained with --set tokenizer.lowercase=false --set tokenizer.normalization=none",
        )
    if document["pre_tokenizer"] != layout.pre_tokenizer(kind):
        raise GlassError("GGUF cannot express this tokenizer: its pre-tokenizer is not glassformer's", remedy)
    vocabulary = layout.tokens(model)
    added_tokens = {each["id"]: each["content"] for each in document["added_tokens"]}
    special = [content for id, content in sorted(added_tokens.items()) if id >= len(vocabulary)]
    if kind == "characters":
        return _character_tokens(vocabulary, special)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    if not merges:
        raise GlassError(
            "GGUF cannot express this tokenizer: it has no merges, and llama.cpp requires some",
            "Nearest: a run trained with a larger --tokenizer.vocab_size, or on more text.",
        )
    kinds = [CONTROL if id in added_tokens else NORMAL for id in range(len(vocabulary) + len(special))]
    return Tokens([*vocabulary, *special], kinds, merges, len(vocabulary))


def _character_tokens(symbols: list[str], special: list[str]) -> Tokens:
    """Return a character vocabulary as byte-level BPE, whose merges only build each character from its UTF-8 bytes.

    A merge joins the beginning of a character with its next continuation byte, so no merge joins two characters.
    """
    letters = layout.byte_letters()
    *characters, unknown = symbols  # see `layout.word_level`
    tokens = []
    merges: dict[str, None] = {}
    for character in characters:
        byte_letters = [letters[byte] for byte in character.encode("utf-8")]
        tokens.append("".join(byte_letters))
        for end in range(1, len(byte_letters)):
            merges.setdefault(f"{''.join(byte_letters[:end])} {byte_letters[end]}")
    merges = merges or {f"{NEVER} {NEVER}": None}  # llama.cpp does not load a file without merges
    kinds = [NORMAL] * len(characters) + [UNKNOWN] + [CONTROL] * len(special)
    return Tokens([*tokens, unknown, *special], kinds, list(merges), len(symbols), unknown_id=len(characters))
