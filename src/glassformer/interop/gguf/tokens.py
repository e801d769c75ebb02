"""The tokenizer as GGUF carries it: tokens, merges, and the name of the rule that cuts text into words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.text.tokenizers import layout

PRE = "qwen35"
"""llama.cpp's name for the rule in `layout.WORD_PIECES`."""
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
"""Kinds of tokens in GGUF."""
NEVER = layout.byte_letters()[0xFF]
"""The letter of a byte that no text in UTF-8 has."""


@dataclass(frozen=True)
class Tokens:
    """The tokenizer's fields of a GGUF file.

    Attributes:
        tokens: in id order, in byte letters.
        kinds: of each: `NORMAL`, `UNKNOWN` or `CONTROL`.
        merges: "left right", the first learnt first.
        end_id: ends a document.
        unknown_id: of the token for symbols that the vocabulary lacks; None where every text can be written.
        start_id: stands before a text where rows in training began with it; None: the end token does.
        answer_end_id: ends an answer of a chat, if that is not the end token.
    """

    tokens: list[str]
    kinds: list[int]
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
    """The tokenizer of a run, as GGUF has it.

    Raises:
        GlassError: it is of a kind that llama.cpp would cut otherwise.
    """
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model = whole["model"]
    facts = model[layout.FACTS]
    kind = facts["kind"]
    remedy = "Nearest: a run trained with --set tokenizer.kind=bpe (byte-level)."
    if kind not in ("bpe", "characters"):
        raise GlassError(f"GGUF cannot carry this tokenizer: tokenizer.kind = {kind}", remedy)
    if whole["normalizer"] is not None:
        name = "lowercase = true" if facts["lowercase"] else f"normalization = {facts['normalization']}"
        raise GlassError(
            f"GGUF cannot carry this tokenizer: tokenizer.{name}, and llama.cpp changes no text before it reads it",
            "Nearest: a run trained with --set tokenizer.lowercase=false --set tokenizer.normalization=none",
        )
    if whole["pre_tokenizer"] != layout.pre_tokenizer(kind):
        raise GlassError("GGUF cannot carry this tokenizer: it cuts words by another rule than glassformer's", remedy)
    words = layout.tokens(model)
    added = {each["id"]: each["content"] for each in whole["added_tokens"]}
    special = [content for id, content in sorted(added.items()) if id >= len(words)]
    if kind == "characters":
        return _characters(words, special)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    if not merges:
        raise GlassError("GGUF cannot carry this tokenizer: it has no merges, and llama.cpp wants some", remedy)
    kinds = [CONTROL if id in added else NORMAL for id in range(len(words) + len(special))]
    return Tokens([*words, *special], kinds, merges, len(words))


def _characters(symbols: list[str], special: list[str]) -> Tokens:
    """Characters as byte pairs: the merges build each character out of its bytes in UTF-8, and nothing else.

    A merge joins a first byte, or what it began, with a byte that goes on, so no merge reaches into another character.
    """
    letters = layout.byte_letters()
    *characters, unknown = symbols  # see `layout.word_level`
    tokens = []
    merges: dict[str, None] = {}
    for character in characters:
        spelt = [letters[byte] for byte in character.encode("utf-8")]
        tokens.append("".join(spelt))
        for end in range(1, len(spelt)):
            merges.setdefault(f"{''.join(spelt[:end])} {spelt[end]}")
    merges = merges or {f"{NEVER} {NEVER}": None}  # llama.cpp opens no file without merges
    kinds = [NORMAL] * len(characters) + [UNKNOWN] + [CONTROL] * len(special)
    return Tokens([*tokens, unknown, *special], kinds, list(merges), len(symbols), unknown_id=len(characters))
