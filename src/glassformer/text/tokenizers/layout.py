"""The `tokenizer.json` of each scheme: Hugging Face's format, with additional fields under `model.glassformer`.

Every file loads in Hugging Face `tokenizers` and gives the same ids there, with two exceptions. That library encodes
text that spells a special token as this token, unless its `encode_special_tokens` is set. It cannot split text into
graphemes as the `regex` package does (whose `\\X` keeps the conjuncts of Indian scripts whole, Unicode Annex 29 rule
GB9c).

========== ============================ ====================================================================
scheme     model                        split into words by
========== ============================ ====================================================================
characters WordLevel                    every character
graphemes  WordLevel                    `regex`'s ``\\X``, in Python
bytes      BPE without merges           nothing; ids 0 to 255 are the bytes themselves
words      WordLevel                    `WORDS`: a word or symbol with the space before it, or a whitespace character
bpe        BPE over bytes               `WORD_PIECES`, the expression of Qwen3.5, which llama.cpp knows as `qwen35`
wordpiece  WordPiece                    BERT's rule: at whitespace, and around every punctuation mark
unigram    Unigram with byte fallback   before each space; line ends, tabs and `<` are separate words
========== ============================ ====================================================================
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from glassformer.base.config import TokenizerConfig

FORMAT = 1
FACTS = "glassformer"
END = "<|end|>"
MASK = "<|mask|>"
UNKNOWN = "<|unknown|>"
REPLACEMENT = "\ufffd"  # replaces an unknown symbol in decoded text
LONGEST_WORD = 64  # characters; longer words would only slow down training

# Marks (\p{M}) belong to words: otherwise Bangla words would be split at every vowel sign. Published with Qwen3.5.
WORD_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# U+200C and U+200D join letters inside words of Indian scripts and of Persian; don't and l’eau are one word each.
WORDS = (
    rf" ?[\p{{L}}\p{{M}}\p{{N}}\u200c\u200d]{{1,{LONGEST_WORD}}}(?:['’][\p{{L}}\p{{M}}]{{1,{LONGEST_WORD}}})?"
    r"| ?[^\s\p{L}\p{M}\p{N}\u200c\u200d]|[\s\S]"
)
# These characters never reach the unigram trainer, so no ordinary token can spell a byte token such as <0x0A>.
ALONE_IN_UNIGRAM = r"[\r\n\t<]"
CONTROL = "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]"

Json = dict[str, Any]


def split(pattern: str, behaviour: str = "Isolated") -> Json:
    """Return a pre-tokenizer that splits text at the matches of a regular expression.

    Args:
        pattern: the regular expression.
        behaviour: where to split: "Isolated" (before and after each match) or "MergedWithNext" (only before).
    """
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behaviour, "invert": False}


def pre_tokenizer(kind: str) -> Json | None:
    """Return the pre-tokenizer of a scheme, which splits text into words; None if the scheme has none."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    table: dict[str, Json | None] = {
        "characters": split(r"[\s\S]"),
        "graphemes": None,
        "bytes": byte_level,
        "words": split(WORDS),
        "bpe": {"type": "Sequence", "pretokenizers": [split(WORD_PIECES), byte_level]},
        "wordpiece": {"type": "BertPreTokenizer"},
        "unigram": {"type": "Sequence", "pretokenizers": [split(ALONE_IN_UNIGRAM), split(" ", "MergedWithNext")]},
    }
    return table[kind]


def normalizer(kind: str, normalization: str, lowercase: bool) -> Json | None:
    """Return the normalizer of a scheme; None if the text is not changed.

    The normalizer of WordPiece also removes control characters and puts spaces around ideographs. BERT's own cleaning
    and accent stripping are turned off, because they delete the joiner U+200D and the vowel signs of Bangla.
    """
    steps: list[Json] = []
    if normalization != "none":
        steps.append({"type": normalization.upper()})
    if lowercase:
        steps.append({"type": "Lowercase"})
    if kind == "wordpiece":
        steps.append({"type": "Replace", "pattern": {"Regex": CONTROL}, "content": ""})
        bert = {"clean_text": False, "handle_chinese_chars": True, "strip_accents": False, "lowercase": False}
        steps.append({"type": "BertNormalizer", **bert})
    return {"type": "Sequence", "normalizers": steps} if steps else None


def decoder(kind: str) -> Json:
    """Return the decoder that Hugging Face `tokenizers` uses to join tokens into text."""
    if kind in ("bytes", "bpe"):
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    if kind == "unigram":
        return {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    if kind == "wordpiece":
        return {"type": "WordPiece", "prefix": "##", "cleanup": False}
    return {"type": "Fuse"}


def word_level(symbols: list[str]) -> Json:
    """Return a model that maps whole words to ids; the unknown token has the last id."""
    vocab = {symbol: id for id, symbol in enumerate([*symbols, UNKNOWN])}
    return {"type": "WordLevel", "vocab": vocab, "unk_token": UNKNOWN}


def build_tokenizer_json(config: TokenizerConfig, model: Json, tokens: int, mask: bool = False) -> Json:
    """Return a `tokenizer.json`: a model of `tokens` tokens, then the end token and, with `mask`, the mask token."""
    added = [special_token(tokens, END)]
    if mask:
        added.append(special_token(tokens + 1, MASK))
    facts: Json = {
        "format": FORMAT,
        "kind": config.kind,
        "normalization": config.normalization,
        "lowercase": config.lowercase,
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer(config.kind, config.normalization, config.lowercase),
        "pre_tokenizer": pre_tokenizer(config.kind),
        "post_processor": None,
        "decoder": decoder(config.kind),
        "model": {**model, FACTS: facts},
    }
    facts["sha256"] = checksum(document)
    return document


def special_token(id: int, content: str) -> Json:
    """Return the entry of a special token in `added_tokens`."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": content, **plain, "special": True}


def checksum(document: Json) -> str:
    """Return the SHA-256 of everything in the file except the checksum itself."""
    facts = {key: value for key, value in document["model"][FACTS].items() if key != "sha256"}
    without_checksum = {**document, "model": {**document["model"], FACTS: facts}}
    return hashlib.sha256(json.dumps(without_checksum, sort_keys=True).encode("ascii")).hexdigest()


def byte_letters() -> list[str]:
    """Return the printable character that represents each byte in byte-level vocabularies (GPT-2's table).

    Printable Latin-1 bytes except the space represent themselves; the others are mapped to the characters from U+0100
    on, in order.
    """
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in itself]
    return [chr(byte if byte in itself else 0x100 + others.index(byte)) for byte in range(256)]


def tokens(model: Json) -> list[str]:
    """Return the model's tokens in id order. A unigram vocabulary is a list of pairs; others map tokens to ids."""
    vocab = model["vocab"]
    return [token for token, _ in vocab] if isinstance(vocab, list) else sorted(vocab, key=vocab.__getitem__)


def token_bytes(kind: str, tokens: list[str]) -> list[bytes]:
    """Return the bytes of each token of the model, in id order (see `Tokenizer.token_bytes`)."""
    if kind in ("bytes", "bpe"):
        byte = {letter: bytes([value]) for value, letter in enumerate(byte_letters())}
        return [b"".join(byte[letter] for letter in token) for token in tokens]
    if kind == "unigram":
        fallback = {f"<0x{value:02X}>": bytes([value]) for value in range(256)}
        return [fallback.get(token, token.encode("utf-8")) for token in tokens]
    texts = [REPLACEMENT if token == UNKNOWN else token for token in tokens]
    if kind == "wordpiece":
        texts = [token[2:] if len(token) > 2 and token.startswith("##") else f" {token}" for token in texts]
    return [token.encode("utf-8") for token in texts]
