"""Tokenizers on any text: decoding restores it as promised, and splits and streaming change no tokens or characters."""

from __future__ import annotations

from functools import cache

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import TOKENIZER_KINDS, TokenizerConfig
from glassformer.text.tokenizers import Tokenizer, train_tokenizer

TRAINING = (
    "The cat sat on the mat, didn't it?\r\n\tThe 42 cats  sat -- flat!\n\n"
    "ক্ষুদ্র ঋণ ও বিশ্ববিদ্যালয়ের র‍্যাব। আমি তোমাকে ভালোবাসি।\n"
    "<|end|> <|unknown|> <0x41> ##ing ▁ <|end|>. Été naïve e\u0301. \u06001 漢字。\n"
    "x\n\n\n\nx\n\n\n\n"
) * 20
FRAGMENTS = [
    *("<|end|>", "<|unknown|>", "<0x41>", "##ing", "##", "▁", "Ġ", "\ufffd", "\ufeff"),
    *("\r\n", "\n", "\r", "\t", " ", "  ", "   \n", "\u00a0", "\u2028", "\u3000", "\u0085", "\x1c", "\x00", "\x7f"),
    *(
        "\u200d",
        "\u200c",
        "\u0301",
        "\u09cd",
        "\u0600",
        "\u0d4e",
        "\u1100\u1161",
        "\u00a8",
        "\u212b",
        "\u1e9e",
        "İ",
        "Σ",
    ),
    *("ক্ষু", "র‍্যাব", "য়", "য\u09bc", "বিশ্ব", "া", "ো", "漢字", "。", "ไทย", "नमस्ते"),
    *("\U0001f469\u200d\U0001f680", "\U0001f1e7\U0001f1e9", "\U0001f44d\U0001f3fd", "\U0010ffff", "\U0001d7d8"),
    *("The", "cat", "'s", "'LL", "don't", "'", "-", "--", ".", "42", "x" * 70, " " * 70, "\n" * 5),
]
TEXTS = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS), st.text(st.characters(exclude_categories=["Cs"]), max_size=6)), max_size=14
).map("".join)
VARIANTS = {
    "plain": {},
    "nfc": {"normalization": "nfc"},
    "nfkd lower": {"normalization": "nfkd", "lowercase": True},
    "nfkc": {"normalization": "nfkc"},
}


@cache
def tokenizer(kind: str, variant: str = "plain") -> Tokenizer:
    size = 500 if kind in ("bpe", "unigram", "wordpiece") else 4000
    return train_tokenizer(TokenizerConfig(kind=kind, vocab_size=size, **VARIANTS[variant]), [TRAINING])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
@settings(max_examples=250)
@given(text=TEXTS)
def test_every_text_is_restored_exactly(kind: str, text: str) -> None:
    made = tokenizer(kind)
    ids = made.encode(text)
    assert made.exact
    assert made.decode(ids) == text
    assert b"".join(map(made.token_bytes, ids)) == text.encode("utf-8")
    assert made.end_id not in ids


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["characters", "graphemes", "words"])
@settings(max_examples=100)
@given(text=TEXTS)
def test_only_unseen_symbols_are_lost(kind: str, text: str) -> None:
    """A tokenizer trained on the text restores it; one trained on another text loses only unseen symbols."""
    if text:
        own = train_tokenizer(TokenizerConfig(kind=kind, vocab_size=4000), [text])
        assert own.decode(own.encode(text)) == text
        assert own.unknown_id not in own.encode(text)
    made = tokenizer(kind)
    ids = made.encode(text)
    assert made.end_id not in ids
    pattern = "(?s:.)*".join("" if id == made.unknown_id else regex.escape(made.token_bytes(id).decode()) for id in ids)
    assert regex.fullmatch("(?s:.)*" + pattern + "(?s:.)*", text)


@pytest.mark.thorough
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@settings(max_examples=60)
@given(text=TEXTS, after=TEXTS, place=st.floats(0, 1))
def test_splitting_a_text_changes_no_token(kind: str, variant: str, text: str, after: str, place: float) -> None:
    made = tokenizer(kind, variant)
    whole = text + " " + after
    for near in {int(place * len(whole)), len(text), len(whole), len(whole) + 3}:
        cut = made.safe_cut(whole, near)
        assert 0 <= cut <= min(near, len(whole))
        assert made.encode(whole[:cut]) + made.encode(whole[cut:]) == made.encode(whole)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_every_safe_split_of_a_difficult_text_changes_no_token(kind: str, variant: str) -> None:
    made = tokenizer(kind, variant)
    for text in (
        "a\n \n b\n\u00a0\n c --\r\n\r d\n\n\n\nx",
        "cafe\u0301 \u0301\n\u0301x \u0600 1\u00a8 y",
        "ক্ ষ\u200d\n\u200d র ‍্যা",
        "  '  s 12 3.",
    ):
        for near in range(len(text) + 1):
            cut = made.safe_cut(text, near)
            assert made.encode(text[:cut]) + made.encode(text[cut:]) == made.encode(text), (text, cut)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_safe_splits_are_found(kind: str) -> None:
    made = tokenizer(kind)
    assert made.safe_cut("The cat sat", 9) == (9 if kind in ("characters", "bytes") else 7)
    assert made.safe_cut("one\ntwo", 6) == (6 if kind in ("characters", "bytes") else 4)
    if kind not in ("characters", "bytes"):
        assert made.safe_cut("xxxxxxxxx", 5) == 0
        assert made.safe_cut("x  \n  y\u0600 z", 8) == 1
    assert made.safe_cut("The cat", 0) == 0
    assert made.safe_cut("The cat", 99) == 7


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@settings(max_examples=60)
@given(text=TEXTS, numbers=st.lists(st.integers(0, 10**6), max_size=12))
def test_a_stream_gives_the_same_text_in_whole_characters(kind: str, text: str, numbers: list[int]) -> None:
    made = tokenizer(kind)
    for ids in (made.encode(text), [number % made.vocab_size for number in numbers]):
        stream = made.stream_decoder()
        parts = [stream.feed(id) for id in ids]
        assert "".join(parts) + stream.finish() == made.decode(ids)
    if made.exact:
        stream = made.stream_decoder()
        parts = [stream.feed(id) for id in made.encode(text)]
        assert "".join(parts) == text
        assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


@pytest.mark.thorough
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@settings(max_examples=60)
@given(texts=st.lists(TEXTS, max_size=4))
def test_batch_encoding_equals_single_encoding(kind: str, texts: list[str]) -> None:
    made = tokenizer(kind)
    assert made.encode_many(texts) == [made.encode(text) for text in texts]
    for text in texts:
        assert len(made.encode(text)) > 0 or not text.strip() or kind == "wordpiece"
