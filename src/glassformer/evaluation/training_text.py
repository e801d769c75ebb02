"""Decode the training text of a run from its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.runs.opening import OpenedRun
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
    data = opened.data
    if data.kind.running_text:
        return data.train.tokens["text"].iter_text(opened.tokenizer)
    return (f"{_as_lines(texts[-1])}\n" for texts in data.train.texts())


def _as_lines(text: str) -> str:
    return MARK.sub(lambda mark: "" if mark.group() == START_MARK else "\n", text)
