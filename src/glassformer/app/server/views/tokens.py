"""Tokens: the tokenization of a text, with the bytes and the training frequency of each token.

The response::

    {"kind": "bpe", "description": …, "vocabulary": 1000, "exact": true, "context": 256,
     "sides": [{"name": "text" | "source" | "target", "text": …, "decoded": …, "round_trip": true, "unread": 0,
                "unknown": ["ß"], "vocabulary": 1000, "counted": 123456 | null,
                "tokens": [{"id": 17, "text": " the", "bytes": [32, 116, 104, 101], "special": false,
                            "count": 512 | null, "log_frequency": -5.5 | null}]}],
     "special": [{"id": 999, "text": "<end>", "role": "end"}],
     "counts": "ready" | "counting" | "absent", "why": null | "…"}

`tokens` are the input of the model, including special tokens around the text, but not truncated to the context;
`unread` is the number of tokens beyond `MOST`, which are not sent. `round_trip`: True if decoding the tokens returns
the text (for a run of task masked, the text without the masks). `unknown` lists at most 100 symbols that the tokenizer
does not know. `count` is the number of occurrences of a token in the training split, `counted` the number of tokens in
that split, and `log_frequency` the natural logarithm of their ratio, or null if `count` is 0. These three fields are
null if the encoded text is not available (`why` is the reason), or while it is being counted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import PageView, TextQuestion, script
from glassformer.base.errors import GlassError
from glassformer.evaluation.simple_predictors import counts_of
from glassformer.runs.run_text import stored_text
from glassformer.tasks import MaskFiller, TextModel, Translator, unknown_symbols
from glassformer.text.tokenizers import Tokenizer

MOST = 2_000
"""Maximum number of tokens to return for each of the `sides`; `unread` counts the others."""
Counts = dict[str, npt.NDArray[np.int64]]


class TokensQuestion(TextQuestion):
    """Request for the tokens of a text and, for a run that translates or summarizes, of its target."""


def answer(opened: ServedModel, question: TokensQuestion) -> dict[str, Any]:
    """Return the tokens of the text, or of the source and the target, with bytes and training counts."""
    model = opened.model
    tokenizer = opened.model.tokenizer
    counts, why = training_counts(opened)
    if isinstance(model, Translator):
        source_ids = model.frame.around(model.source_tokenizer.encode(question.text))
        target, target_ids = _target(opened, question)
        sides = [
            _side_entry("source", question.text, question.text, model.source_tokenizer, source_ids, counts),
            _side_entry("target", target, target, tokenizer, target_ids, counts),
        ]
    else:
        if question.target is not None:
            raise GlassError(f"a target was given, but {opened.name} has no targets", "Remove `target`.")
        expected, ids = _encode_text(opened, question.text)
        sides = [_side_entry("text", question.text, expected, tokenizer, ids, counts)]
    return {
        "kind": tokenizer.kind,
        "description": tokenizer.description(),
        "vocabulary": tokenizer.vocab_size,
        "exact": tokenizer.exact,
        "context": model.config.model.context,
        "sides": sides,
        "special": [{"id": id, "text": tokenizer.token_text(id), "role": role} for role, id in _roles(tokenizer)],
        "counts": "absent" if why else "ready" if counts is not None else "counting",
        "why": why,
    }


def _target(opened: ServedModel, question: TokensQuestion) -> tuple[str, list[int]]:
    """Return the target and its ids: the given target, or the model's greedy output."""
    tokenizer = opened.model.tokenizer
    if question.target is not None:
        return question.target, [*tokenizer.target_start, *tokenizer.encode(question.target)]
    subject = opened.subject(question.text)
    return subject.target or "", list(subject.target_ids or ())


def _encode_text(opened: ServedModel, text: str) -> tuple[str, list[int]]:
    """Return the text that the tokens should decode to, and their ids, not truncated to the model's context."""
    model = opened.model
    assert not isinstance(model, Translator)
    if isinstance(model, TextModel):
        return text, model.prompt_ids(text)
    if not isinstance(model, MaskFiller) or MaskFiller.MASK not in text:
        return text, model.frame.around(model.tokenizer.encode(text))
    first, *other_parts = model.parts(text)
    ids = model.tokenizer.encode(first)
    for part in other_parts:
        ids += [model.mask_id, *model.tokenizer.encode(part)]
    return "".join([first, *other_parts]), model.frame.around(ids)


def _side_entry(
    role: str, text: str, expected: str, tokenizer: Tokenizer, ids: list[int], counts: Counts | None
) -> dict[str, Any]:
    """Return the entry of `sides` for one role; `expected` is the text that the tokens should decode to."""
    token_counts = None if counts is None else counts[role]
    total = None if token_counts is None else int(token_counts.sum())
    decoded = tokenizer.decode(ids)
    return {
        "name": role,
        "text": text,
        "decoded": decoded,
        "round_trip": decoded == expected,
        "unread": max(0, len(ids) - MOST),
        "unknown": unknown_symbols(tokenizer, expected)[:100],
        "vocabulary": tokenizer.vocab_size,
        "counted": total,
        "tokens": [
            {
                "id": id,
                "text": tokenizer.token_text(id),
                "bytes": list(tokenizer.token_bytes(id)),
                "special": id in tokenizer.special,
                "count": None if token_counts is None else int(token_counts[id]),
                "log_frequency": math.log(token_counts[id] / total)
                if token_counts is not None and token_counts[id]
                else None,
            }
            for id in ids[:MOST]
        ],
    }


def _roles(tokenizer: Tokenizer) -> list[tuple[str, int]]:
    """Return the role and the id of each token with a special role, in the order of the ids."""
    ids_by_role = {
        "end": tokenizer.end_id,
        "start": tokenizer.start_id,
        "mask": tokenizer.mask_id,
        "unknown": tokenizer.unknown_id,
        "padding": tokenizer.padding_id,
    }
    roles: dict[int, str] = {}
    for role, id in ids_by_role.items():
        if id is not None:
            roles.setdefault(id, role)
    return [(role, id) for id, role in sorted(roles.items())]


def training_counts(opened: ServedModel) -> tuple[Counts | None, str | None]:
    """Return the training counts of each token (None until they are ready), and the reason if there are none."""
    try:
        return opened.later("token counts", lambda: count_tokens(opened)), None
    except GlassError as error:
        return None, error.problem


def count_tokens(opened: ServedModel) -> Counts:
    """Return the number of occurrences of each token in the training split: "text", "source" or "target" -> (V,).

    Raises:
        GlassError: the encoded training text is not available; it is not encoded again, which could take minutes.
    """
    data = stored_text(opened.run.files, opened.run.config)
    return {
        role: counts_of(store.tokens, data.tokenizers[role].vocab_size) for role, store in data.train.tokens.items()
    }


def python(opened: ServedModel, question: TokensQuestion) -> str:
    """Return a script that prints the token ids and their text."""
    model = opened.model
    text = repr(question.text)
    imports: tuple[str, ...] = ()
    if isinstance(model, Translator):
        tokenizer_of = {f"model.frame.around(model.source_tokenizer.encode({text}))": "model.source_tokenizer"}
        if question.target is None:
            imports = ("from glassformer.inspection.explain import unshortened_subject_of",)
            tokenizer_of[f"unshortened_subject_of(model, {text}).target_ids"] = "model.tokenizer"
        else:
            tokenizer_of[f"[*model.tokenizer.target_start, *model.tokenizer.encode({question.target!r})]"] = (
                "model.tokenizer"
            )
    elif isinstance(model, TextModel):
        tokenizer_of = {f"model.prompt_ids({text})": "model.tokenizer"}
    elif isinstance(model, MaskFiller) and MaskFiller.MASK in question.text:
        tokenizer_of = {f"model.ids({text})": "model.tokenizer"}
    else:
        tokenizer_of = {f"model.frame.around(model.tokenizer.encode({text}))": "model.tokenizer"}
    lines = [f"for id in {ids}:\n    print(id, {tokenizer}.token_text(id))" for ids, tokenizer in tokenizer_of.items()]
    return script(opened, *lines, imports=imports)


VIEW = PageView(TokensQuestion, answer, python)
