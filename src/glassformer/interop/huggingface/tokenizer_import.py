"""Import Hugging Face tokenizers with the same token ids; unsupported tokenizers raise a `GlassError`.

A frame consists of the special tokens that a tokenizer adds before and after a text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import tokenizers

from glassformer.base.config import LABELLED, PAIRS, Task
from glassformer.base.errors import GlassError
from glassformer.interop.huggingface.folder import read_json
from glassformer.interop.huggingface.tokenizer_files import rename_mask
from glassformer.text.tokenizers import Frame, Tokenizer, layout
from glassformer.text.tokenizers.roles import convert_tokenizer_json

Json = dict[str, Any]
SUPPORTED_TOKENIZERS = "Give a model with a byte-level BPE, WordPiece or Unigram tokenizer in its tokenizer.json."


@dataclass(frozen=True)
class ImportedTokenizer:
    """A tokenizer, and whether it adds a special token before texts.

    Attributes:
        tokenizer: the tokenizer, with as many ids as the model.
        framed: whether a special token is added before a text.
    """

    tokenizer: Tokenizer
    framed: bool


def read_tokenizer(folder: Path, size: int, task: Task, config: Json) -> ImportedTokenizer:
    """Read the tokenizer of a Hugging Face folder.

    Args:
        folder: the model folder.
        size: vocabulary size of the model.
        task: task of the model, which determines the allowed frames of a text.
        config: fields of `config.json`, for the ids of special tokens.

    Raises:
        GlassError: the tokenizer is missing, damaged, of an unsupported kind, larger than the model's embedding, or
            adds special tokens that our models do not support.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        others = [
            name
            for name in ("vocab.json", "vocab.txt", "spiece.model", "tokenizer.model", "source.spm")
            if (folder / name).exists()
        ]
        raise GlassError(
            f"{folder} has no tokenizer.json" + (f", only {others[0]}" if others else ""),
            "Create one with transformers: AutoTokenizer.from_pretrained(PATH).save_pretrained(NEW).",
        )
    document = read_json(path, "a tokenizer.json")
    try:
        bare = {**document, "model": {key: v for key, v in document["model"].items() if key != layout.FACTS}}
        theirs = tokenizers.Tokenizer.from_str(json.dumps(bare))
        theirs.no_truncation()
        theirs.no_padding()
    except Exception as error:  # the library raises plain Exception
        raise GlassError(f"{path} is not a tokenizer: {error}", "Copy it again from the model's source.") from None
    frame = _frame(theirs)
    tokenizer = _exported_tokenizer(document, path)
    names = _special_token_texts(folder)
    if tokenizer is None:
        end_id = _end_id(theirs, names, config, path)
        if task in PAIRS and not len(frame):
            frame = Frame(after=(end_id,))  # an encoder-decoder without a frame gets our end token
        bos_id = theirs.token_to_id(names["bos_token"]) if "bos_token" in names else None
        start_id = frame.before[0] if frame.before else end_id if bos_id is None else bos_id
        kind, unknown_id = _kind_and_unknown_id(document, theirs, path)
        token_count = max(theirs.get_vocab(with_added_tokens=True).values()) + 1
        _check_size(token_count, size, path)
        roles: Json = {
            "start": start_id,
            "end": end_id,
            "unknown": unknown_id,
            "before": frame.before,
            "after": frame.after,
        }
        for role in ("mask", "pad"):
            token_text = names.get(f"{role}_token")
            roles["padding" if role == "pad" else role] = (
                theirs.token_to_id(token_text) if token_text is not None else None
            )
        if roles["padding"] in (end_id, start_id, unknown_id):  # this token occurs in texts
            roles["padding"] = None
        roles["target_start"] = target_start(config, size) if task in PAIRS else None
        if extra_end_ids := _more_end_ids(config, end_id, size):
            roles["more_ends"] = extra_end_ids
        tokenizer = Tokenizer(convert_tokenizer_json(document, kind, size, roles, _prepends_space(document)))
    elif tokenizer.vocab_size != size:
        _check_size(tokenizer.vocab_size, size, path, equal=True)
    _check_frame(frame, tokenizer, task, theirs, path)
    return ImportedTokenizer(tokenizer, bool(frame.before))


def _exported_tokenizer(document: Json, path: Path) -> Tokenizer | None:
    """Return a tokenizer that `glass export` wrote; None for any other tokenizer."""
    facts = document["model"].get(layout.FACTS)
    if not isinstance(facts, dict):
        return None
    original = {**document, "post_processor": None, "added_tokens": [{**each} for each in document["added_tokens"]]}
    rename_mask(original, layout.MASK, takes_space=False)
    if facts.get("sha256") != layout.checksum(original):
        raise GlassError(f"{path} was altered after glass export wrote it", "Copy the exported file again.")
    return Tokenizer(original)


def _check_size(tokens: int, size: int, path: Path, equal: bool = False) -> None:
    if tokens > size or (equal and tokens != size):
        raise GlassError(
            f"{path} has {tokens:,} tokens, but the model's embedding has {size:,}",
            "Give the tokenizer that the model was trained with.",
        )


def _special_token_texts(folder: Path) -> dict[str, str]:
    """Return the text of each special token by its name, such as `eos_token`, from the folder's other files."""
    texts: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).exists():
            for part, token in read_json(folder / name, "a tokenizer").items():
                content = token.get("content") if isinstance(token, dict) else token
                if part.endswith("_token") and isinstance(content, str):
                    texts[part] = content
    return texts


def _end_id(theirs: tokenizers.Tokenizer, names: dict[str, str], config: Json, path: Path) -> int:
    """Return the id of the token that ends a text, from the tokenizer's files or from `config.json`."""
    for name in ("eos_token", "sep_token"):
        token_id = theirs.token_to_id(names[name]) if name in names else None
        if token_id is not None:
            return token_id
    ids = config.get("eos_token_id")
    id = ids[0] if isinstance(ids, list) and ids else ids
    if _is_id(id, theirs.get_vocab_size()) and theirs.id_to_token(id) is not None:
        return id
    raise GlassError(
        f"{path} has no token that ends a text: there is no eos_token", 'Set "eos_token" in tokenizer_config.json.'
    )


def _is_id(value: Any, size: int) -> TypeGuard[int]:
    """Return whether a value of a JSON file is a token id below `size`, and not a boolean, which is also an `int`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def _more_end_ids(config: Json, end_id: int, size: int) -> list[int]:
    """Return the ids of the tokens that end a text besides the end token, if `eos_token_id` is a list."""
    ids = config.get("eos_token_id")
    listed_ids = ids if isinstance(ids, list) else []
    return sorted({id for id in listed_ids if _is_id(id, size) and id != end_id})


def _kind_and_unknown_id(document: Json, theirs: tokenizers.Tokenizer, path: Path) -> tuple[str, int | None]:
    """Return our name for the type of the tokenizer, and the id of its unknown token; None if it has none."""
    model = document["model"]
    kind = model.get("type") or ("WordPiece" if "max_input_chars_per_word" in model else "BPE")
    if kind == "BPE":
        if "ByteLevel" not in _step_types(document.get("pre_tokenizer")) + _step_types(document.get("normalizer")):
            raise GlassError(
                f"{path} is a BPE of characters, not of bytes (no ByteLevel pre-tokenizer)", SUPPORTED_TOKENIZERS
            )
        if model.get("dropout"):
            raise GlassError(
                f"{path} splits words at random: dropout = {model['dropout']}", 'Set its "dropout" to null.'
            )
        letters = {*layout.byte_letters(), *(each["content"] for each in document["added_tokens"])}
        foreign = next(
            (token for token in model["vocab"] if token not in letters and not letters.issuperset(token)), None
        )
        if foreign is not None:
            raise GlassError(f"{path} has the token {foreign!r}, which is not a byte-level token", SUPPORTED_TOKENIZERS)
        return "bpe", None
    if kind == "WordPiece":
        if model.get("continuing_subword_prefix") != "##":
            raise GlassError(
                f"{path} has continuing_subword_prefix = {model.get('continuing_subword_prefix')!r}, "
                "but only '##' is supported",
                SUPPORTED_TOKENIZERS,
            )
        return "wordpiece", theirs.token_to_id(model.get("unk_token", ""))
    if kind == "Unigram":
        return "unigram", None if model.get("byte_fallback") else model.get("unk_id")
    raise GlassError(f"{path} has a tokenizer of type {kind}", SUPPORTED_TOKENIZERS)


def _step_types(part: Any) -> list[str]:
    """Return the type of a pre-tokenizer or normalizer, followed by the types of its nested steps."""
    if not isinstance(part, dict):
        return []
    nested = [*part.get("pretokenizers", []), *part.get("normalizers", [])]
    return [str(part.get("type")), *[name for step in nested for name in _step_types(step)]]


def _prepends_space(document: Json) -> bool:
    """Return whether the first word gets a leading space: always with WordPiece, else if the pre-tokenizer adds one."""
    step = document.get("pre_tokenizer") or {}
    if document["model"].get("type") == "WordPiece":
        return True
    steps = [step, *step.get("pretokenizers", [])]
    return any(
        each.get("add_prefix_space") is True
        if each.get("type") == "ByteLevel"
        else each.get("type") == "Metaspace" and each.get("prepend_scheme", "always") != "never"
        for each in steps
    )


def target_start(config: Json, size: int) -> list[int]:
    """Return the first ids of a target: the start token, and a forced first token, as in mBART-50.

    Raises:
        GlassError: `config.json` lacks the start token, or an id is outside the vocabulary.
    """
    ids = []
    for name in ("decoder_start_token_id", "forced_bos_token_id"):
        id = config.get(name)
        if id is None and name.startswith("forced"):
            continue
        if not _is_id(id, size):
            raise GlassError(
                f"the model folder has {name} = {id!r}, but targets must begin with a token",
                f"Set it to the id of that token, below {size}: in generation_config.json if that file has {name}, "
                "otherwise in config.json. In mBART-50, forced_bos_token_id is the token of the target language.",
            )
        ids.append(id)
    return ids


def _frame(theirs: tokenizers.Tokenizer) -> Frame:
    """Return the ids that the tokenizer adds before and after a text."""
    plain, framed = (theirs.encode("a", add_special_tokens=special).ids for special in (False, True))
    for start in range(len(framed) - len(plain) + 1):
        if framed[start : start + len(plain)] == plain:
            return Frame(tuple(framed[:start]), tuple(framed[start + len(plain) :]))
    return Frame(tuple(framed))


def _check_frame(frame: Frame, tokenizer: Tokenizer, task: Task, theirs: tokenizers.Tokenizer, path: Path) -> None:
    """Raise a `GlassError` if our models of this task do not support the frame.

    A decoder continues the text, so no token may follow the text. Rows of running text are cut from documents, each
    with a start token before it and an end token after it. For classification and translation, any frame is allowed.
    """
    if task in PAIRS or task in LABELLED:
        return
    allowed = [(), (tokenizer.end_id,)] if task == "masked" else [()]
    if len(frame.before) > 1 or frame.after not in allowed:
        frame_text = " ".join(
            [*map(str, map(theirs.id_to_token, frame.before)), "TEXT", *map(str, map(theirs.id_to_token, frame.after))]
        )
        required = "TEXT, or one start token and TEXT" + (", with or without an end token" if task == "masked" else "")
        raise GlassError(
            f"{path} frames a text as {frame_text}, but models of this task need {required}",
            "Read only its tensors, in Python: glassformer.interop.huggingface.read_model.read_model(FOLDER).",
        )
