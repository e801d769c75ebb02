"""Export a run's tokenizer as files for `AutoTokenizer`, with the same ids and the same frame around texts.

A frame consists of the special tokens before and after a text (see `tokenizers.frames`). Text that spells a special
token stays text, with two exceptions: in a masked language model the user must be able to write masks, and a chat
template writes special tokens. In these two cases, the spellings of all special tokens are recognized, as in other
`transformers` tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from glassformer.base.config import OF_DECODERS, PAIRS, Config
from glassformer.base.errors import GlassError
from glassformer.base.files import write_text
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.chatting import TokenizedTemplate
from glassformer.tasks.filling import SPACE_BELONGS_TO_WORD
from glassformer.text.chat_template import ChatTemplate
from glassformer.text.tokenizers import Frame, Tokenizer, frame_of, layout

Json = dict[str, Any]
TOKENIZER_CLASS = "PreTrainedTokenizerFast"
MASK_TEXT = "[MASK]"
"""Spelling of the mask token in the exported tokenizer, as in `glass fill`, unless another token has this spelling."""


def refuse_unwritable(opened: OpenedRun) -> None:
    """Raise a `GlassError` if the format cannot express the run's tokenizer."""
    if opened.tokenizer.kind == "graphemes":
        raise GlassError(
            "tokenizer.kind = graphemes cannot be exported to Hugging Face, whose library has no grapheme tokenizer",
            "Nearest: a run trained with --set tokenizer.kind=characters, or bpe, which can encode every text.",
        )
    if opened.source_tokenizer.digest != opened.tokenizer.digest:
        raise GlassError(
            "tokenizer.joint = false cannot be exported to Hugging Face, whose classes have a single vocabulary",
            "Nearest: a run trained with --set tokenizer.joint=true.",
        )


def write_tokenizer_json(path: Path, saved: Path, tokenizer: Tokenizer, config: Config) -> dict[int, str]:
    """Write a `tokenizer.json` that adds the run's frame to each text.

    Args:
        path: the new file.
        saved: the run's tokenizer file; its contents are kept, except the post-processor and, in a masked language
            model, the spelling of the mask, so that import recognizes the new file.
        tokenizer: the tokenizer in `saved`.
        config: settings of the run.

    Returns:
        The spelling of each special token, by id.
    """
    document: Json = json.loads(saved.read_text(encoding="utf-8"))
    frame = frame_of(tokenizer, config)
    names = special_names(tokenizer, frame)
    if config.train.task == "masked":
        rename_mask(document, MASK_TEXT, tokenizer.kind in SPACE_BELONGS_TO_WORD)
        names = {id: MASK_TEXT if name == layout.MASK else name for id, name in names.items()}
    document["post_processor"] = _post_processor(frame, names) if len(frame) else None
    write_text(path, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    return names


def spells_special_tokens(config: Config, chat_template: str | None) -> bool:
    """Return whether the spelling of a special token in a text is read as that token, for masks or a chat template."""
    return config.train.task == "masked" or chat_template is not None


def write_tokenizer(folder: Path, saved: Path, tokenizer: Tokenizer, config: Config, chat_template: str | None) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into a folder.

    Args:
        folder: the folder.
        saved: the run's tokenizer file.
        tokenizer: the tokenizer in `saved`.
        config: settings of the run.
        chat_template: the run's chat template; with a template, spellings of special tokens in a text are read as
            tokens. None: no template.
    """
    names = write_tokenizer_json(folder / "tokenizer.json", saved, tokenizer, config)
    values: Json = {
        "tokenizer_class": TOKENIZER_CLASS,
        "model_max_length": config.model.context,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": not spells_special_tokens(config, chat_template),
        "padding_side": "left"
        if config.train.task in OF_DECODERS
        else "right",  # a decoder continues from the last position
        "model_input_names": ["input_ids", "attention_mask"],
        "eos_token": names[tokenizer.end_id],
        "bos_token": names[tokenizer.start_id],
        "pad_token": names[padding_or_end(tokenizer)],
    }
    if tokenizer.mask_id is not None:
        values["mask_token"] = names[tokenizer.mask_id]
    if tokenizer.unknown_id is not None:
        values["unk_token"] = names[tokenizer.unknown_id]
    elif config.train.task in PAIRS:
        values["unk_token"] = names[tokenizer.end_id]  # CTranslate2 requires one; it never occurs
    (folder / "tokenizer_config.json").write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", "utf-8")


def padding_or_end(tokenizer: Tokenizer) -> int:
    """Return the id of the padding token or, if there is none, of the end token; the attention mask hides either."""
    return tokenizer.end_id if tokenizer.padding_id is None else tokenizer.padding_id


def special_names(tokenizer: Tokenizer, frame: Frame) -> dict[int, str]:
    """Return the text of each special token, by id."""
    special = {tokenizer.start_id, tokenizer.end_id, tokenizer.mask_id, tokenizer.unknown_id, padding_or_end(tokenizer)}
    return {id: tokenizer.token_text(id) for id in special | {*frame.before, *frame.after} if id is not None}


def rename_mask(document: Json, name: str, takes_space: bool) -> None:
    """Change the spelling of the mask token, unless another token has this spelling.

    A tokenizer that was imported, or that has no mask token, is not changed.

    Args:
        document: contents of the tokenizer file; changed in place.
        name: the new spelling; `layout.MASK` restores the original.
        takes_space: whether the mask token includes a space before it, as the tokens of words do.
    """
    facts = document["model"][layout.FACTS]
    added = document["added_tokens"]
    if "roles" in facts or len(added) < 2 or name in layout.tokens(document["model"]):
        return
    added[1] |= {"content": name, "lstrip": takes_space}


def _post_processor(frame: Frame, names: dict[int, str]) -> Json:
    """Return the post-processor that adds the frame to a text."""

    def piece(id: int) -> Json:
        return {"SpecialToken": {"id": names[id], "type_id": 0}}

    single = [*map(piece, frame.before), {"Sequence": {"id": "A", "type_id": 0}}, *map(piece, frame.after)]
    second = [{"Sequence": {"id": "B", "type_id": 0}}, *map(piece, frame.after)]
    tokens = {names[id]: {"id": names[id], "ids": [id], "tokens": [names[id]]} for id in (*frame.before, *frame.after)}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *second], "special_tokens": tokens}


def special_ids(tokenizer: Tokenizer, config: Config) -> Json:
    """Return the special token ids for `config.json`.

    transformers never trains the embedding row of `pad_token_id`. A tokenizer without a padding token pads with the end
    token, which also occurs in texts. Its `pad_token_id` is therefore null, except in an encoder-decoder, which
    requires a value.
    """
    ids: Json = {"bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.end_id}
    if config.train.task in PAIRS:
        first, *forced = tokenizer.target_start
        ids |= {"decoder_start_token_id": first, "forced_bos_token_id": forced[0] if forced else None}
        ids["forced_eos_token_id"] = None
    ids["pad_token_id"] = padding_or_end(tokenizer) if config.train.task in PAIRS else tokenizer.padding_id
    return ids


def writing_ids(tokenizer: Tokenizer, config: Config, extra_end_ids: Collection[int] = ()) -> Json:
    """Return the special token ids for `generation_config.json`, where finished rows are filled with padding.

    Args:
        tokenizer: tokenizer of the run.
        config: settings of the run.
        extra_end_ids: tokens that end a text besides the end token.
    """
    ids = {**special_ids(tokenizer, config), "pad_token_id": padding_or_end(tokenizer)}
    others = sorted({*extra_end_ids} - {tokenizer.end_id})
    return {**ids, "eos_token_id": [tokenizer.end_id, *others]} if others else ids


def template_tokens(template: str | None, tokenizer: Tokenizer) -> tuple[frozenset[int], bool]:
    """Return the tokens that end an answer in a chat template, and whether the template writes the start token.

    If the template refuses a plain conversation, for example because it requires tools, return an empty set, and
    whether the template contains `bos_token`.
    """
    if template is None:
        return frozenset(), False
    try:
        chat = TokenizedTemplate(ChatTemplate(template), tokenizer)
        return chat.extra_end_ids, chat.writes_start
    except GlassError:
        return frozenset(), "bos_token" in template
