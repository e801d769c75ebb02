"""Tokenizer data for the page, or an error that names the first component that the page does not support.

`web/src/share/tokenizer.ts` implements the components listed here, with the same token ids as `Tokenizer`. Other
components, which an imported `tokenizer.json` may have, could silently give different ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.text.tokenizers import Tokenizer, layout

Json = dict[str, Any]
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace", "BertNormalizer")
PRE_TOKENIZERS = ("Split", "ByteLevel", "BertPreTokenizer")
MODELS = ("WordLevel", "BPE", "WordPiece", "Unigram")
PATTERNS = (r"[\s\S]", " ", layout.WORDS, layout.WORD_PIECES, layout.ALONE_IN_UNIGRAM, layout.CONTROL)
"""Regular expressions that the page supports, after ``\\s`` and ``(?i:`` are translated to JavaScript."""
SWITCHES: dict[str, tuple[Any, ...]] = {
    "clean_text": (False,),
    "strip_accents": (False,),
    "add_prefix_space": (False,),
    "use_regex": (False,),
    "invert": (False,),
    "behavior": ("Isolated", "MergedWithNext"),
    "dropout": (None, 0.0),
    "fuse_unk": (False,),
    "end_of_word_suffix": (None, ""),
    "continuing_subword_prefix": (None, "", "##"),
}
"""Options of the components, with the values that the page supports."""
REMEDY = "Share a run whose tokenizer glassformer trained, or use glass serve, which supports every tokenizer."


def page_tokenizer(tokenizer: Tokenizer, path: Path) -> Json:
    """Return the contents of the tokenizer's file, a description, and the roles of its special ids.

    Args:
        tokenizer: loaded tokenizer.
        path: path of its file.

    Raises:
        GlassError: the page does not support the tokenizer.
    """
    document: Json = json.loads(path.read_text(encoding="utf-8"))
    _refuse_unsupported(document)
    frame = tokenizer.frame
    return {
        "document": document,
        "description": tokenizer.description(),
        "exact": tokenizer.exact,
        "roles": {
            "size": tokenizer.vocab_size,
            "start": tokenizer.start_id,
            "end": tokenizer.end_id,
            "mask": tokenizer.mask_id,
            "unknown": tokenizer.unknown_id,
            "padding": tokenizer.padding_id,
            "special": sorted(tokenizer.special),
            "drops_space": tokenizer.drops_space,
            "frame": None if frame is None else {"before": list(frame.before), "after": list(frame.after)},
            "target_start": list(tokenizer.target_start),
        },
    }


def _refuse_unsupported(document: Json) -> None:
    """Raise a `GlassError` that names the first component of the tokenizer that the page does not support."""
    model = document["model"]
    parts: list[tuple[str, tuple[str, ...], Json]] = [
        ("normalizer", NORMALIZERS, each) for each in _parts(document["normalizer"])
    ]
    parts += [("pre-tokenizer", PRE_TOKENIZERS, each) for each in _parts(document["pre_tokenizer"])]
    parts += [("model", MODELS, {**model, "type": model.get("type", "BPE")})]
    for component, supported, part in parts:
        if part["type"] not in supported:
            raise GlassError(f"the page does not support the tokenizer's {component} {part['type']}", REMEDY)
        pattern = part.get("pattern")
        if pattern is not None and next(iter(pattern.values())) not in PATTERNS:
            raise GlassError(
                f"the page does not support the tokenizer's pattern {next(iter(pattern.values()))!r}", REMEDY
            )
        for option, values in SWITCHES.items():
            if part.get(option, values[0]) not in values:
                raise GlassError(
                    f"the page does not support {option} = {part[option]!r} of the tokenizer's {component} "
                    f"{part['type']}",
                    REMEDY,
                )
    plain_token = next((each["content"] for each in document["added_tokens"] if not each["special"]), None)
    if plain_token is not None:
        raise GlassError(f"the page does not support the tokenizer's added token {plain_token!r}", REMEDY)


def _parts(node: Json | None) -> Iterator[Json]:
    """Yield the components of a normalizer or pre-tokenizer in order, without the sequences that contain them."""
    if node is not None and node["type"] == "Sequence":
        for each in [*node.get("normalizers", []), *node.get("pretokenizers", [])]:
            yield from _parts(each)
    elif node is not None:
        yield node
