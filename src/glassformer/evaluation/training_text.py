"""The text that a run learnt to write from, read once from its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from glassformer.runs.opening import OpenedRun
from glassformer.text.examples import PreparedExamples


def training_text(opened: OpenedRun) -> Iterator[str]:
    """Return the training part in pieces: running text, or the targets of all pairs, one in a line.

    Args:
        opened: a run that writes.

    Raises:
        GlassError: the text is not at hand.
    """
    data = opened.data
    if isinstance(data, PreparedExamples):
        return (f"{target}\n" for _, target in data.train.texts())
    return data.train.iter_text(opened.tokenizer)
