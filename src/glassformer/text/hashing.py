"""Hash a text, to recognise the text that a run was trained on."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path

from glassformer.base.config import EXAMPLES, DataConfig, Task
from glassformer.text.example_source import ExampleSource, open_examples
from glassformer.text.locating import is_encoded
from glassformer.text.prepare import open_prepared
from glassformer.text.reading import open_source


def text_hash(task: Task, data: DataConfig, cache: Path) -> str:
    """Return the hash of the text that `data` names, as a run's manifest has it; nothing is encoded.

    Args:
        task: the task that the text is read for.
        data: the source and how it is read.
        cache: folder for input that cannot be read twice, such as standard input.

    Raises:
        GlassError: the text cannot be read.
    """
    with ExitStack() as stack:
        if task in EXAMPLES:
            source = stack.enter_context(open_examples(task, data, cache))
            own = stack.enter_context(open_examples(task, data, cache, validation=True)) if data.validation else None
            return hash_of_examples(source, own)
        if is_encoded(folder := Path(data.source).expanduser()):
            return open_prepared(folder).text_hash
        return stack.enter_context(open_source(data, cache)).digest


def hash_of_examples(source: ExampleSource, own: ExampleSource | None) -> str:
    """Return the hash of the examples and, if they have one, of their own validation source."""
    digests = [source.digest, own.digest if own else ""]
    return hashlib.sha256(" ".join(digests).encode("ascii")).hexdigest()
