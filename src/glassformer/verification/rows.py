"""Rows for the checks, from the run's validation text or, if it is missing or cannot be used, from a built-in text."""

from __future__ import annotations

import numpy as np

from glassformer.base.config import LABELLED, PAIRS
from glassformer.base.errors import GlassError
from glassformer.runs.opening import OpenedRun
from glassformer.runs.run_text import stored_text
from glassformer.tasks.make import make_task
from glassformer.text.rows import Ids, Row, mask
from glassformer.text.tokenizers import Tokenizer

ROWS = 4
LONGEST = 64  # maximum length of a row, unless twice the model's window is longer
LONGEST_WINDOW = 512  # maximum length with a window: rows are twice as long as the window, so that it masks tokens
CANDIDATES = 32  # number of rows from which the longest are chosen
KEY = (20, 4)  # seed key of the random masks
OWN_TEXT = """The old dog sleeps in the sun, and the red bird sings above it. When the rain came early, they went home.
A stitch in time saves nine; still waters run deep. At 7 o'clock she wrote: "We will meet in the garden."
Der alte Hund schläft. Le café était fermé. Быстрая лиса прыгает. সে বাগানে গান গায়। 我们在花园里。"""


def few_rows(opened: OpenedRun) -> tuple[list[Row], str]:
    """Return `ROWS` rows of the run's task and a description of their source.

    The rows are cut to decreasing lengths, so that a batch of them has padding; short rows may have equal lengths.
    """
    rows = _validation_rows(opened)
    description = "the run's validation text"
    if not rows:
        rows = _encoded_rows(opened)
        description = "a built-in text, because the run's own encoded text is missing or cannot be used"
    rows = (rows * ROWS)[:ROWS]  # repeat rows if there are too few; each is cut to another length
    window = opened.config.model.window or 0
    longest = min(max(LONGEST, min(2 * window, LONGEST_WINDOW)), opened.config.model.context, len(rows[0]))
    lengths = [max(1, longest * (ROWS - number) // ROWS - number) for number in range(ROWS)]
    return [cut(row, length, opened) for row, length in zip(rows, lengths, strict=True)], description


def _validation_rows(opened: OpenedRun) -> list[Row]:
    """Return the `ROWS` longest of `CANDIDATES` evenly spaced validation rows, or fewer if there are not enough.

    The list is empty if the encoded text is missing or was encoded with another tokenizer.
    """
    try:
        data = stored_text(opened.files, opened.config)
    except GlassError:
        return []
    if data.tokenizer.digest != opened.tokenizer.digest:
        return []
    rows = make_task(opened.config, data).held_out(None)
    count = min(CANDIDATES, len(rows))
    candidates = [rows[index * len(rows) // count] for index in range(count)]
    return sorted(candidates, key=len, reverse=True)[:ROWS]


def _encoded_rows(opened: OpenedRun) -> list[Row]:
    """Return rows of `OWN_TEXT` that begin at different positions, without its unknown tokens.

    Random tokens fill the rest of each row.
    """
    config = opened.config
    target_start = opened.tokenizer.target_start
    end_id = opened.tokenizer.end_id
    start_id = opened.tokenizer.start_id
    task = config.train.task
    length = config.model.context + 1
    rows: list[Row] = []
    for number in range(ROWS):
        ids = _tokens(opened.tokenizer, length, number)
        if task in PAIRS:
            source = np.append(_tokens(opened.source_tokenizer, length, number + ROWS), opened.source_tokenizer.end_id)
            rows.append(Row.of_text(np.concatenate([target_start, ids, [end_id]]), source=source))
        elif task in LABELLED:
            rows.append(Row(np.concatenate([[start_id], ids]), np.array([number % len(opened.labels)])))
        elif task == "masked":
            rows.append(Row(ids, ids, loss_mask=ids > 0))
        else:
            rows.append(Row.of_text(ids))
    return rows


def _tokens(tokenizer: Tokenizer, length: int, number: int) -> Ids:
    text_ids = [id for id in tokenizer.encode(OWN_TEXT) if id not in tokenizer.special]
    random_ids = tokenizer.text_ids[
        np.random.Philox(key=number).random_raw(length) % np.uint64(len(tokenizer.text_ids))
    ]
    start = number * len(text_ids) // (2 * ROWS)
    return np.concatenate([np.array(text_ids[start:], dtype=np.int64), random_ids])[:length]


def cut(row: Row, length: int, opened: OpenedRun) -> Row:
    """Cut a row of any task to at most `length` input tokens; mask the tokens of a masked row again."""
    if row.source is not None:  # source and target get different lengths, so that a mix-up of the two is noticed
        source = np.append(row.source[: max(1, length - 2)][:-1], opened.source_tokenizer.end_id)
        return Row.of_text(row.ids[: length + 1], source=source)
    if row.shifted:
        return Row.of_text(row.ids[: length + 1])
    if opened.config.train.task in LABELLED:
        return Row(row.inputs[:length], row.targets)
    if row.loss_mask is None:  # the targets are given
        return Row(row.inputs[:length], row.targets[:length])
    tokenizer = opened.tokenizer
    assert tokenizer.mask_id is not None
    return mask(row.targets[:length], opened.config.train.mask_share, tokenizer.mask_id, tokenizer.text_ids, KEY)
