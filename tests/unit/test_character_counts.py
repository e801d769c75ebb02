"""Characters are counted equally in long blocks of ASCII, in short blocks and in other scripts."""

from __future__ import annotations

from collections import Counter

from glassformer.base.config import TokenizerConfig
from glassformer.text.tokenizers.training import LONG_BLOCK, _count_characters


def test_every_block_is_counted() -> None:
    texts = ["abc\n" * LONG_BLOCK, "short\x00", "আমি " * LONG_BLOCK + "abc", "é" * LONG_BLOCK, "a" * LONG_BLOCK, ""]
    counts = _count_characters(TokenizerConfig(kind="characters"), texts)
    assert counts == Counter("".join(texts))
    assert all(type(count) is int for count in counts.values())
