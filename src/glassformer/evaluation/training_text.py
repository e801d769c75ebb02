"""The text that a run learnt to write from, read once from its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.runs.opening import OpenedRun
from glassformer.text.records import END_MARK, START_MARK


def training_text(opened: OpenedRun) -> Iterator[str]:
    """Return the training part in pieces: running text, the targets of all pairs, or all conversations, one in a line.

    An end token inside a conversation is a line end here.

    Args:
        opened: a run that writes.

    Raises:
        GlassError: the text is not at hand.
    """
    data = opened.data
    if data.kind.running_text:
        return data.train.tokens["text"].iter_text(opened.tokenizer)
    as_lines = str.maketrans({END_MARK: "\n", START_MARK: ""})
    return (f"{texts[-1].translate(as_lines)}\n" for texts in data.train.texts())
