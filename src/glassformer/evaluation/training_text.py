"""The text that a run learnt to write from, read once from its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from glassformer.runs.folder import Folder, open_run
from glassformer.runs.run_text import encoded_text
from glassformer.tasks import TextModel, Translator


def training_text(
    folder: Folder, model: TextModel | Translator, note: Callable[[str], None] = lambda text: None
) -> Iterator[str]:
    """The training part, in pieces: running text, or the targets of all pairs, one in a line.

    Args:
        folder: of the run.
        model: what it holds.
        note: is told what a person should know.

    Raises:
        GlassError: the text is not at hand.
    """
    data = encoded_text(open_run(folder), model.config, note)
    if data.kind.running_text:
        return data.train.tokens["text"].iter_text(model.tokenizer)
    return (f"{texts[-1]}\n" for texts in data.train.texts())
