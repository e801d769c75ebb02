"""The tokenizer round trip of `glass verify`: every scheme passes, and a tokenizer that loses text fails."""

from __future__ import annotations

import pytest

from glassformer.base.config import TOKENIZER_KINDS, TokenizerConfig
from glassformer.text.tokenizers import Tokenizer, train_tokenizer
from glassformer.verification.file_checks import TEXTS, survives_round_trip

LEARNT = ["The quick brown fox jumps over the lazy dog. " * 3, "গান গাই, Русский; 한국어!", "two  spaces and a\ttab\n"]


def tokenizer(kind: str, normalization: str = "none", lowercase: bool = False) -> Tokenizer:
    """Return a tokenizer trained on text in some scripts and not in others."""
    settings = TokenizerConfig.model_validate(
        {"kind": kind, "vocab_size": 320, "normalization": normalization, "lowercase": lowercase}
    )
    return train_tokenizer(settings, LEARNT)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("normalization", ["none", "nfc", "nfkd"])
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_every_scheme_restores_what_it_promises(kind: str, normalization: str, lowercase: bool) -> None:
    made = tokenizer(kind, normalization, lowercase)
    assert [text for text in (*TEXTS, *LEARNT) if not survives_round_trip(made, text)] == []


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_scheme_that_changes_letters_is_detected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tokenizer(kind)
    own = Tokenizer.decode
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: own(self, ids).replace("quick", "kciuq"))
    assert not survives_round_trip(made, LEARNT[0])


def test_capitals_must_be_restored_without_lowercasing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tokenizer("characters")
    own = Tokenizer.decode
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: own(self, ids).lower())
    assert not survives_round_trip(made, LEARNT[0])
