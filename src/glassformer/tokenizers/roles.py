"""Which ids of a vocabulary have a part of their own, and what each id stands for; of our tokenizers, and of others'.

Ours have their special tokens last: unknown, end, mask. Those that come from elsewhere have them anywhere; then the
file says under `roles` which is which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassformer.tokenizers import layout

METASPACE = "\u2581"  # stands for a space in vocabularies made by sentencepiece


@dataclass(frozen=True)
class Roles:
    """See `Tokenizer` for the ids.

    Attributes:
        size: number of ids.
        start: stands before a text's first token.
        ordinary: from this id on all are special.
        bytes: what each id stands for; nothing for special ones.
        drops_space: the first token's space is no part of the text.
    """

    size: int
    start: int
    end: int
    mask: int | None
    unknown: int | None
    ordinary: int
    bytes: list[bytes]
    drops_space: bool


def roles_of(document: dict[str, Any]) -> Roles:
    """The roles in a `tokenizer.json` of ours, or in one that `imported_document` made."""
    facts, model = document["model"][layout.FACTS], document["model"]
    if "roles" in facts:
        return _imported(document, facts["kind"], facts["roles"])
    tokens, added = layout.tokens(model), document["added_tokens"]
    end = len(tokens)
    unknown = end - 1 if tokens[-1] == layout.UNKNOWN else None
    return Roles(
        size=end + len(added),
        start=end,
        end=end,
        mask=end + 1 if len(added) > 1 else None,
        unknown=unknown,
        ordinary=end if unknown is None else unknown,
        bytes=[*layout.token_bytes(facts["kind"], tokens), *[b""] * len(added)],
        drops_space=facts["kind"] == "wordpiece",
    )


def imported_document(
    document: dict[str, Any], kind: str, size: int, roles: dict[str, int | None], drops_space: bool
) -> dict[str, Any]:
    """Another program's `tokenizer.json` as a file of ours: the same ids, and which of them have a part of their own.

    Args:
        document: the file's contents.
        kind: "bpe", "wordpiece" or "unigram".
        size: rows of the model's embedding; those beyond the file's tokens stand for nothing.
        roles: the ids of "start", "end", "mask" and "unknown".
        drops_space: see `Roles`.
    """
    facts: dict[str, Any] = {"format": layout.FORMAT, "kind": kind, "normalization": "none", "lowercase": False}
    facts["roles"] = {**roles, "size": size, "drops_space": drops_space}
    bare = {**document, "truncation": None, "padding": None, "post_processor": None}
    whole = {**bare, "model": {**document["model"], layout.FACTS: facts}}
    facts["sha256"] = layout.checksum(whole)
    return whole


def _imported(document: dict[str, Any], kind: str, roles: dict[str, Any]) -> Roles:
    vocab, size = document["model"]["vocab"], roles["size"]
    pairs = enumerate(token for token, _ in vocab) if isinstance(vocab, list) else ((vocab[t], t) for t in vocab)
    tokens, special = dict(pairs), {roles["start"], roles["end"], roles["mask"], roles["unknown"]}
    parts: list[bytes] = [b""] * size
    plain = {added["id"]: added["content"] for added in document["added_tokens"]}
    special |= {added["id"] for added in document["added_tokens"] if added["special"]}
    ids = [id for id in tokens if id not in plain]
    for id, data in zip(ids, layout.token_bytes(kind, [tokens[id] for id in ids]), strict=True):
        parts[id] = data.replace(METASPACE.encode(), b" ") if kind == "unigram" else data
    parts = [plain[id].encode() if id in plain else data for id, data in enumerate(parts)]
    parts = [b"" if id in special else data for id, data in enumerate(parts)]
    if roles["unknown"] is not None:
        parts[roles["unknown"]] = layout.REPLACEMENT.encode()
    named = special | (set(range(size)) - tokens.keys() - plain.keys())
    ordinary = size
    while ordinary and ordinary - 1 in named:
        ordinary -= 1
    return Roles(
        size, roles["start"], roles["end"], roles["mask"], roles["unknown"], ordinary, parts, roles["drops_space"]
    )
