"""The tokenizer as GGUF carries it: tokens, merges, and the name of the rule that cuts text into words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import GlassError
from glassformer.tokenizers import layout

PRE = "qwen35"
"""llama.cpp's name for the rule in `layout.WORD_PIECES`."""
NORMAL, CONTROL = 1, 3
"""Kinds of tokens in GGUF."""


@dataclass(frozen=True)
class Tokens:
    """What a GGUF file says of a tokenizer.

    Attributes:
        tokens: in id order, in byte letters.
        kinds: of each: `NORMAL` or `CONTROL`.
        merges: "left right", the first learnt first.
        end_id: ends a document, and stands before a text where rows in training began with it.
    """

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    end_id: int


def read_tokens(path: Path) -> Tokens:
    """The tokenizer of a run, as GGUF has it.

    Raises:
        GlassError: it is of a kind that llama.cpp would cut otherwise.
    """
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model, facts = whole["model"], whole["model"][layout.FACTS]
    remedy = "Nearest: a run trained with --set tokenizer.kind=bpe (byte-level)."
    if facts["kind"] != "bpe":
        raise GlassError(f"GGUF cannot carry this tokenizer: tokenizer.kind = {facts['kind']}", remedy)
    if whole["normalizer"] is not None:
        name = "lowercase = true" if facts["lowercase"] else f"normalization = {facts['normalization']}"
        raise GlassError(
            f"GGUF cannot carry this tokenizer: tokenizer.{name}, and llama.cpp changes no text before it reads it",
            "Nearest: a run trained with --set tokenizer.lowercase=false --set tokenizer.normalization=none",
        )
    if whole["pre_tokenizer"] != layout.pre_tokenizer("bpe"):
        raise GlassError("GGUF cannot carry this tokenizer: it cuts words by another rule than glassformer's", remedy)
    words, special = layout.tokens(model), [each["content"] for each in whole["added_tokens"]]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    if not merges:
        raise GlassError("GGUF cannot carry this tokenizer: it has no merges, and llama.cpp wants some", remedy)
    kinds = [NORMAL] * len(words) + [CONTROL] * len(special)
    return Tokens([*words, *special], kinds, merges, len(words))
