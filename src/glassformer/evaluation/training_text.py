"""Decode the training text and the held-out text of a run from its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.runs.opening import OpenedRun
from glassformer.text.record_store import RecordStore
from glassformer.text.records import START_MARK
from glassformer.text.special_names import MARK


def training_text(opened: OpenedRun) -> Iterator[str]:
    """Return the training split in chunks: running text, the targets of all pairs, or all conversations.

    Each target or conversation ends with a line break. A special token inside a conversation becomes a line break; the
    start token is dropped.

    Args:
        opened: a run that generates text.

    Raises:
        GlassError: the text is not available.
    """
    return _text_of(opened, opened.data.train)


def held_out_text(opened: OpenedRun) -> Iterator[str]:
    """Return the validation split in chunks, as `training_text` returns the training split.

    Raises:
        GlassError: the text is not available.
    """
    return _text_of(opened, opened.data.validation)


def _text_of(opened: OpenedRun, split: RecordStore) -> Iterator[str]:
    if opened.data.kind.running_text:
        return split.tokens["text"].iter_text(opened.tokenizer)
    return (f"{_as_lines(texts[-1])}\n" for texts in split.texts())


def _as_lines(text: str) -> str:
    return MARK.sub(lambda mark: "" if mark.group() == START_MARK else "\n", text)
