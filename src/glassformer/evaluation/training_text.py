"""The text that a run learnt to write from, read once from its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.runs.opening import OpenedRun
from glassformer.text.records import START_MARK
from glassformer.text.special_names import MARK


def training_text(opened: OpenedRun) -> Iterator[str]:
    """Return the training part in pieces: running text, the targets of all pairs, or all conversations, one in a line.

    A special token inside a conversation is a line end here; the start token is left out.

    Args:
        opened: a run that writes.

    Raises:
        GlassError: the text is not at hand.
    """
    data = opened.data
    if data.kind.running_text:
        return data.train.tokens["text"].iter_text(opened.tokenizer)
    return (f"{_as_lines(texts[-1])}\n" for texts in data.train.texts())


def _as_lines(text: str) -> str:
    return MARK.sub(lambda mark: "" if mark.group() == START_MARK else "\n", text)
