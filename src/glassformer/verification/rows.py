"""The rows that are checked with: a few of the run's own validation text, or of a text that its tokenizer encodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.base.config import EXAMPLES, PAIRS
from glassformer.base.errors import GlassError
from glassformer.runs.opening import OpenedRun
from glassformer.runs.run_text import stored_text
from glassformer.tasks.make import make_task
from glassformer.text.rows import Labelled, Masked, Pair, Row, mask

ROWS = 4
LONGEST = 64  # tokens of the longest row, if the model has no long window
LONGEST_WINDOW = 512  # tokens of the longest row of a model with a window: twice the window, so that it hides something
DRAWN = 32  # rows that the longest are chosen from
KEY = (20, 4)  # of the holes in masked rows
OWN_TEXT = """The old dog sleeps in the sun, and the red bird sings above it. When the rain came early, they went home.
A stitch in time saves nine; still waters run deep. At 7 o'clock she wrote: "We will meet in the garden."
Der alte Hund schläft. Le café était fermé. Быстрая лиса прыгает. সে বাগানে গান গায়। 我们在花园里。"""


def few_rows(opened: OpenedRun) -> tuple[list[Any], str]:
    """`ROWS` rows of the run's task, of different lengths, the longest first; and where they are from, in words."""
    found, text = _own_rows(opened), "the run's validation text"
    if not found:
        found, text = _encoded_rows(opened), "a text of ours, in the run's tokens: its own text is not here"
    found = (found * ROWS)[:ROWS]  # where there are fewer, the same ones are cut to other lengths
    window = opened.config.model.window or 0
    longest = min(max(LONGEST, min(2 * window, LONGEST_WINDOW)), opened.config.model.context, len(found[0]))
    lengths = [max(1, longest * (ROWS - number) // ROWS - number) for number in range(ROWS)]
    return [cut(row, length, opened) for row, length in zip(found, lengths, strict=True)], text


def _own_rows(opened: OpenedRun) -> list[Any]:
    """The longest of some validation rows; none where the encoded text is gone or of another tokenizer."""
    try:
        data = stored_text(opened.files, opened.config)
    except GlassError:
        return []
    if data.tokenizer.digest != opened.tokenizer.digest:
        return []
    rows = make_task(opened.config, data).held_out(None)
    drawn = [rows[number] for number in sorted({place * len(rows) // DRAWN for place in range(DRAWN)})]
    return sorted(drawn, key=len, reverse=True)[:ROWS]


def _encoded_rows(opened: OpenedRun) -> list[Any]:
    """Rows of `OWN_TEXT`, each beginning elsewhere. What the tokenizer cannot write is replaced by any tokens."""
    config, start, end = opened.config, opened.tokenizer.target_start, opened.tokenizer.end_id
    before = opened.tokenizer.start_id
    task, length = config.train.task, config.model.context + 1
    rows: list[Any] = []
    for number in range(ROWS):
        ids = _tokens(opened.tokenizer, length, number)
        if task in PAIRS:
            source = _tokens(opened.source_tokenizer, length, number + ROWS)
            rows.append(Pair(np.append(source, opened.source_tokenizer.end_id), np.concatenate([start, ids, [end]])))
        elif task in EXAMPLES:
            rows.append(Labelled(np.concatenate([[before], ids]), number % len(opened.labels)))
        else:
            rows.append(Masked(ids, ids, ids > 0) if task == "masked" else ids)
    return rows


def _tokens(tokenizer: Any, length: int, number: int) -> Row:
    known = [id for id in tokenizer.encode(OWN_TEXT) if id not in tokenizer.special]
    drawn = tokenizer.text_ids[np.random.Philox(key=number).random_raw(length) % np.uint64(len(tokenizer.text_ids))]
    start = number * len(known) // (2 * ROWS)
    return np.concatenate([np.array(known[start:], dtype=np.int64), drawn])[:length]


def cut(row: Any, length: int, opened: OpenedRun) -> Any:
    """The beginning of a row of any task, of which at most `length` tokens are read; masked rows get new holes."""
    if isinstance(row, Pair):  # source and target have different lengths, so that none can pass for the other
        source = np.append(row.source[: max(1, length - 2)][:-1], opened.source_tokenizer.end_id)
        return Pair(source, row.target[: length + 1])
    if isinstance(row, Labelled):
        return Labelled(row.tokens[:length], row.label)
    if isinstance(row, Masked):
        tokenizer, share = opened.tokenizer, opened.config.train.mask_share
        assert tokenizer.mask_id is not None
        return mask(np.asarray(row.targets[:length]), share, tokenizer.mask_id, tokenizer.text_ids, KEY)
    return row[: length + 1]


def ids_of(row: Any) -> list[int]:
    """What the model reads of a row: of a pair, what is given to the decoder."""
    if isinstance(row, Pair):
        return _ints(row.target[:-1])
    if isinstance(row, Labelled):
        return _ints(row.tokens)
    return _ints(row.inputs if isinstance(row, Masked) else row[:-1])


def source_ids_of(row: Pair) -> list[int]:
    """What the encoder reads of a pair."""
    return _ints(row.source)


def _ints(row: Sequence[Any] | Row) -> list[int]:
    return [int(id) for id in row]
