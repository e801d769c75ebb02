"""The tokenizer of a run as the files that `AutoTokenizer` reads: the same ids, and the frame a model's texts have.

A frame is what stands around a text: the start token before it where rows in training began with one, the end token
after it where an encoder-decoder reads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.config import PAIRS, Config
from glassformer.errors import GlassError
from glassformer.tokenizers import Tokenizer

Json = dict[str, Any]


def frame(tokenizer: Tokenizer, config: Config) -> tuple[list[int], list[int]]:
    """The ids before and after a text that the model reads."""
    if config.train.task in PAIRS:
        return [], [tokenizer.end_id]
    framed = config.train.task == "classify" or config.data.windows == "documents"
    return ([tokenizer.start_id], []) if framed else ([], [])


def refuse_unwritable(tokenizer: Tokenizer, config: Config) -> None:
    """Raise a `GlassError` for what the format cannot hold."""
    if tokenizer.kind == "graphemes":
        raise GlassError(
            "tokenizer.kind = graphemes cannot be written for Hugging Face, whose library cuts text otherwise",
            "Nearest: tokenizer.kind=characters, or bpe, which can write every text.",
        )
    if config.two_vocabularies:
        raise GlassError(
            "tokenizer.joint = false: source and target have a vocabulary each, and their classes have one",
            "Nearest: a run trained with --set tokenizer.joint=true.",
        )


def write_tokenizer(folder: Path, saved: Path, tokenizer: Tokenizer, config: Config) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`.

    Args:
        folder: where.
        saved: the run's own tokenizer file; its contents are kept whole, so that import knows it again.
        tokenizer: read from it.
        config: of the run.
    """
    document: Json = json.loads(saved.read_text(encoding="utf-8"))
    names = special_names(tokenizer)
    before, after = frame(tokenizer, config)
    document["post_processor"] = _template(before, after, names) if before or after else None
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    facts: Json = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.model.context,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # text that spells a special token is text
        "padding_side": "right",
        "model_input_names": ["input_ids", "attention_mask"],
        "eos_token": names[tokenizer.end_id],
        "bos_token": names[tokenizer.start_id],
        "pad_token": names[tokenizer.end_id],
    }
    if tokenizer.mask_id is not None:
        facts["mask_token"] = names[tokenizer.mask_id]
    if tokenizer.unknown_id is not None:
        facts["unk_token"] = names[tokenizer.unknown_id]
    (folder / "tokenizer_config.json").write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "utf-8")


def special_names(tokenizer: Tokenizer) -> dict[int, str]:
    """How the special tokens are spelled."""
    special = {tokenizer.start_id, tokenizer.end_id, tokenizer.mask_id, tokenizer.unknown_id}
    return {id: tokenizer.token_text(id) for id in special if id is not None}


def _template(before: list[int], after: list[int], names: dict[int, str]) -> Json:
    """The post-processor that puts the frame around a text."""

    def piece(id: int) -> Json:
        return {"SpecialToken": {"id": names[id], "type_id": 0}}

    frame_of = [*map(piece, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(piece, after)]
    second = [{"Sequence": {"id": "B", "type_id": 0}}, *map(piece, after)]
    tokens = {names[id]: {"id": names[id], "ids": [id], "tokens": [names[id]]} for id in (*before, *after)}
    return {"type": "TemplateProcessing", "single": frame_of, "pair": [*frame_of, *second], "special_tokens": tokens}


def special_ids(tokenizer: Tokenizer, config: Config) -> Json:
    """What `config.json` and `generation_config.json` say of special tokens."""
    found: Json = {"bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.end_id}
    if config.train.task in PAIRS:
        found |= {"decoder_start_token_id": tokenizer.end_id, "pad_token_id": tokenizer.end_id}
        found |= {"forced_eos_token_id": None, "forced_bos_token_id": None}
    elif config.train.task == "lm":
        found["pad_token_id"] = tokenizer.end_id
    return found
