"""Surprisal of a file, of a string, of a target given its source, or of a run's own validation split.

Text is cut into rows as in training, so that the mean over a run's own validation split is the loss that
`glass evaluate` reports, up to rounding. This does not hold for a masked language model, whose tokens are masked one at
a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.evaluation.probes.row_probabilities import ScorableModel, max_row_tokens, score_targets
from glassformer.evaluation.probes.surprisal import LISTED, SurprisalResult, grouped, surprisal
from glassformer.evaluation.simple_predictors import counts_of
from glassformer.tasks import MaskFiller, Translator
from glassformer.tasks.example_tasks import pair_rows
from glassformer.text.batches import validation_rows
from glassformer.text.evaluation_data import encode_evaluation_data
from glassformer.text.prepare import Prepared
from glassformer.text.records import RECORD_KINDS
from glassformer.text.rows import Row
from glassformer.text.store import TokenStore

Counts = npt.NDArray[np.int64]
MOST_HOLES = 20_000
"""Approximate maximum number of tokens whose surprisal a masked language model measures, each in a separate row."""


def surprisal_of_file(
    model: ScorableModel,
    text: Path,
    counts: Counts | None,
    reading: Mapping[str, str] | None = None,
    note: Callable[[str], None] = lambda text: None,
    max_tokens: int | None = None,
) -> SurprisalResult:
    """Measure the surprisal of a file.

    Args:
        model: the run.
        text: path of the file, or "-" for standard input.
        counts: count of each token in the training text, (V,); None: count the tokens of this text.
        reading: settings of `data` for reading a table, such as its column.
        note: function that is called with each note for the user on how the file was read.
        max_tokens: maximum number of tokens; None: no limit.

    Raises:
        GlassError: the file does not exist, cannot be read, or has fewer than two tokens or more than
            `max_tokens`.
    """
    if str(text) != "-" and not text.exists():
        raise GlassError(f"{text} does not exist", "Give a file with text.")
    data_config = model.config.data
    data = DataConfig(source=str(text), document=data_config.document).replace(**(reading or {}))
    with tempfile.TemporaryDirectory(prefix="glass-probe-", ignore_cleanup_errors=True) as temporary:
        kind = RECORD_KINDS[model.config.train.task]
        encoded = encode_evaluation_data(kind, data, {"text": model.tokenizer}, Path(temporary))
        store = encoded.store.tokens["text"]
        if len(store) < 2:
            raise GlassError(
                f"{text} has {counted(len(store), 'tokens')}, but surprisal needs at least 2",
                "Give a longer text: --text FILE.",
            )
        if max_tokens is not None and len(store) > max_tokens:
            raise GlassError(
                f"the text has {len(store):,} tokens, but at most {max_tokens:,} are allowed", "Give a shorter text."
            )
        for remark in encoded.notes:
            note(remark)
        return _surprisal_of_store(model, store, counts, f"of {text}", LISTED)


def surprisal_of_text(
    model: ScorableModel, text: str, counts: Counts | None, max_tokens: int | None = None
) -> SurprisalResult:
    """Measure the surprisal of a string as if it were read from a file; see `surprisal_of_file`.

    Raises:
        GlassError: as in `surprisal_of_file`, or the text has only white space.
    """
    if not text.strip():
        raise GlassError(f"the text {text[:60]!r} has no characters except white space", "Give a text with words.")
    with tempfile.TemporaryDirectory(prefix="glass-probe-", ignore_cleanup_errors=True) as temporary:
        path = Path(temporary) / "text.txt"
        path.write_text(text, encoding="utf-8", errors="replace")
        return replace(surprisal_of_file(model, path, counts, max_tokens=max_tokens), about="of this text")


def surprisal_of_split(model: ScorableModel | Translator, data: Prepared, counts: Counts | None) -> SurprisalResult:
    """Measure the surprisal of a run's own validation split; if the task has sources, only targets are measured.

    Raises:
        GlassError: the validation split has fewer than two tokens.
    """
    about = "of the validation split"
    if isinstance(model, Translator):
        return _surprisal_of_pairs(model, pair_rows(data.validation, model.config), counts, about)
    store = data.validation.tokens["text"]
    if len(store) < 2:
        raise GlassError(
            f"the validation split has {counted(len(store), 'tokens')}, but surprisal needs at least 2",
            "Name a longer text: --text FILE.",
        )
    return _surprisal_of_store(model, store, counts, about)


def surprisal_of_target(model: Translator, source: str, target: str, counts: Counts | None) -> SurprisalResult:
    """Measure the surprisal of a target and its end token given the source, with teacher forcing.

    Raises:
        GlassError: the source or the target is longer than the context of the model.
    """
    context = model.config.model.context
    start = model.tokenizer.target_start
    target_ids = model.tokenizer.encode(target)
    lengths = {"source": context + model.unread_tokens(source), "target": len(start) + len(target_ids)}
    for text_name, length in lengths.items():
        if length > context:
            raise GlassError(
                f"the {text_name} has {length:,} tokens, but the model reads at most {context:,}",
                f"Give a shorter {text_name}.",
            )
    ids = [*start, *target_ids, model.tokenizer.end_id]
    row = Row.of_text(np.array(ids, dtype=np.int64), source=np.array(model.prompt_ids(source), dtype=np.int64))
    return _surprisal_of_pairs(model, [row], counts, "of this target", LISTED)


def _surprisal_of_store(
    model: ScorableModel, store: TokenStore, counts: Counts | None, about: str, listed: int = 0
) -> SurprisalResult:
    masked = isinstance(model, MaskFiller)
    start = model.tokenizer.start_id
    limit = MOST_HOLES if masked else None
    data = model.config.data.for_other_text()
    rows = [row.ids for row in validation_rows(store, data, max_row_tokens(model), start, limit)]
    remarks = []
    if masked and sum(len(row) - 1 for row in rows) < len(store) - 1:
        remarks = [
            f"only {counted(len(rows), 'evenly spaced rows')}, as a masked model reads a row once for each token"
        ]
    token_counts = counts_of(store.tokens, model.tokenizer.vocab_size) if counts is None else counts
    return surprisal(model, rows, token_counts, _counted_in(counts), about, remarks, listed)


def _surprisal_of_pairs(
    model: Translator, rows: Sequence[Row], counts: Counts | None, about: str, listed: int = 0
) -> SurprisalResult:
    nats = [row_scores.nats for row_scores in score_targets(model, rows)]
    targets = [row.ids for row in rows]
    token_counts = counts
    if token_counts is None:
        token_counts = counts_of(np.concatenate([target[1:] for target in targets]), model.tokenizer.vocab_size)
    return grouped(nats, targets, model.tokenizer, token_counts, _counted_in(counts), about, (), listed)


def _counted_in(counts: Counts | None) -> str:
    return "this text" if counts is None else "training"
