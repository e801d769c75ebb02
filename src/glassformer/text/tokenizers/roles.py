"""Special ids of a vocabulary, and the bytes that each id represents, for trained and imported tokenizers.

Tokenizers that glassformer trained have their special tokens last: unknown, end, mask. Imported tokenizers may have
them anywhere; their file lists them under `roles`, together with the ids around an input text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassformer.base.config import TokenizerConfig
from glassformer.text.tokenizers import layout
from glassformer.text.tokenizers.frames import Frame

METASPACE = "\u2581"  # represents a space in vocabularies made by sentencepiece


@dataclass(frozen=True)
class Vocabulary:
    """Special ids and byte strings of a vocabulary; see `Tokenizer`.

    Attributes:
        size: number of ids.
        start: id before a text's first token.
        end: id of the end token.
        mask: id of the mask token; None: there is none.
        unknown: id of the unknown token; None: there is none.
        bytes: the bytes of each id; empty for special ids, but the bytes of U+FFFD for the unknown id.
        drops_space: whether decoding drops the space before the first token.
        special: all ids that represent no text: special tokens, the unknown token, and embedding rows without a token.
        padding: id of the padding token, which no text contains; None: there is none.
        frame: ids around an input text; None: the task and the settings determine the frame.
        target_start: ids at the beginning of the decoder's input in an encoder-decoder model.
        extra_end_ids: further ids that end a generated text.
    """

    size: int
    start: int
    end: int
    mask: int | None
    unknown: int | None
    bytes: list[bytes]
    drops_space: bool
    special: frozenset[int]
    padding: int | None
    frame: Frame | None
    target_start: tuple[int, ...]
    extra_end_ids: frozenset[int] = frozenset()


def vocabulary_of(document: dict[str, Any]) -> Vocabulary:
    """Return the vocabulary of a `tokenizer.json` that glassformer trained or that `convert_tokenizer_json` made."""
    facts = document["model"][layout.FACTS]
    model = document["model"]
    if "roles" in facts:
        return _imported(document, facts["kind"], facts["roles"])
    tokens = layout.tokens(model)
    added = document["added_tokens"]
    end = len(tokens)
    unknown = end - 1 if tokens[-1] == layout.UNKNOWN else None
    size = end + len(added)
    return Vocabulary(
        size=size,
        start=end,
        end=end,
        mask=end + 1 if len(added) > 1 else None,
        unknown=unknown,
        bytes=[*layout.token_bytes(facts["kind"], tokens), *[b""] * len(added)],
        drops_space=facts["kind"] == "wordpiece",
        special=frozenset(range(end if unknown is None else unknown, size)),
        padding=None,
        frame=None,
        target_start=(end,),
    )


def convert_tokenizer_json(
    document: dict[str, Any], kind: str, size: int, roles: dict[str, Any], drops_space: bool
) -> dict[str, Any]:
    """Convert another program's `tokenizer.json` to glassformer's format, which lists special ids; ids do not change.

    Args:
        document: the file's contents.
        kind: "bpe", "wordpiece" or "unigram".
        size: number of rows of the model's embedding; rows beyond the file's tokens represent no text.
        roles: ids "start", "end", "mask", "unknown" and "padding"; lists of ids "before" and "after" an input text,
            "target_start", and "more_ends", the tokens besides the end token that end a generated text.
        drops_space: see `Vocabulary`.
    """
    facts: dict[str, Any] = {"format": layout.FORMAT, "kind": kind, "normalization": "none", "lowercase": False}
    facts["roles"] = {**roles, "size": size, "drops_space": drops_space}
    bare = {**document, "truncation": None, "padding": None, "post_processor": None}
    converted = {**bare, "model": {**document["model"], layout.FACTS: facts}}
    facts["sha256"] = layout.checksum(converted)
    return converted


def number_tokenizer_json(model: dict[str, Any], roles: dict[str, Any]) -> dict[str, Any]:
    """Return the `tokenizer.json` of numbers between spaces.

    Args:
        model: WordPiece model with whole numbers as its words.
        roles: special ids, as in `convert_tokenizer_json`.
    """
    document = layout.build_tokenizer_json(TokenizerConfig(kind="wordpiece"), model, len(model["vocab"]))
    names = {id: name for name, id in model["vocab"].items()}
    added = {roles[role]: names[roles[role]] for role in ("end", "mask")}
    document["added_tokens"] = [layout.special_token(id, name) for id, name in sorted(added.items())]
    return convert_tokenizer_json(document, "wordpiece", len(model["vocab"]), roles, drops_space=True)


def _imported(document: dict[str, Any], kind: str, roles: dict[str, Any]) -> Vocabulary:
    """Return the vocabulary of an imported tokenizer.

    Added tokens represent their content, unless they are special. The unknown id represents U+FFFD; other special ids
    represent no bytes.
    """
    vocab = document["model"]["vocab"]
    size = roles["size"]
    pairs = enumerate(token for token, _ in vocab) if isinstance(vocab, list) else ((vocab[t], t) for t in vocab)
    tokens = dict(pairs)
    special = {roles["start"], roles["end"], roles["mask"], roles["unknown"]}
    id_bytes: list[bytes] = [b""] * size
    added_texts = {added["id"]: added["content"] for added in document["added_tokens"]}
    special |= {added["id"] for added in document["added_tokens"] if added["special"]}
    ids = [id for id in tokens if id not in added_texts]
    for id, data in zip(ids, layout.token_bytes(kind, [tokens[id] for id in ids]), strict=True):
        id_bytes[id] = data.replace(METASPACE.encode(), b" ") if kind == "unigram" else data
    id_bytes = [added_texts[id].encode() if id in added_texts else data for id, data in enumerate(id_bytes)]
    id_bytes = [b"" if id in special else data for id, data in enumerate(id_bytes)]
    if roles["unknown"] is not None:
        id_bytes[roles["unknown"]] = layout.REPLACEMENT.encode()
    unused_ids = set(range(size)) - tokens.keys() - added_texts.keys()
    before = roles.get("before")
    after = roles.get("after")
    return Vocabulary(
        size=size,
        start=roles["start"],
        end=roles["end"],
        mask=roles["mask"],
        unknown=roles["unknown"],
        bytes=id_bytes,
        drops_space=roles["drops_space"],
        special=frozenset(special | unused_ids) - {None},
        padding=roles.get("padding"),
        frame=None if before is None or after is None else Frame(tuple(before), tuple(after)),
        target_start=tuple(roles.get("target_start") or (roles["end"],)),
        extra_end_ids=frozenset(roles.get("more_ends") or ()),
    )
