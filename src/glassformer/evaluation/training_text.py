"""The text that a run learnt to write from, read once from its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.runs.opening import OpenedRun


def training_text(opened: OpenedRun) -> Iterator[str]:
    """Return the training part in pieces: running text, or the targets of all pairs, one in a line.

    Args:
        opened: a run that writes.

    Raises:
        GlassError: the text is not at hand.
    """
    data = opened.data
    if data.kind.running_text:
        return data.train.tokens["text"].iter_text(opened.tokenizer)
    return (f"{texts[-1]}\n" for texts in data.train.texts())
