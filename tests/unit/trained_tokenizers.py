"""A small text in two scripts, and tokenizers trained on it."""

from __future__ import annotations

from typing import Any

from glassformer.base.config import TokenizerConfig
from glassformer.text.tokenizers import Tokenizer, train_tokenizer

BANGLA = "ক্ষুদ্র ঋণ ও বিশ্ববিদ্যালয়ের র‍্যাব। আমি তোমাকে ভালোবাসি, সত্যি ভালোবাসি।\n"
ENGLISH = "The cat sat on the mat; the dog didn't sit.\nThe cat's 42 mats were flat -- so flat!\n\n"
TEXT = (ENGLISH + BANGLA) * 5
SIZES = {"words": 200, "bpe": 320, "wordpiece": 200, "unigram": 360}


def trained(kind: str, texts: list[str] | None = None, **settings: Any) -> Tokenizer:
    """Return a small tokenizer of a kind, trained on `texts` or on `TEXT`."""
    settings.setdefault("vocab_size", SIZES.get(kind, 500))
    return train_tokenizer(TokenizerConfig(kind=kind, **settings), [TEXT] if texts is None else texts)
