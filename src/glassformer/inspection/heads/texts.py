"""Text probes: the run's held-out rows, given texts, or random tokens if there is no text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.inspection.heads.attention_arrays import Ids
from glassformer.inspection.heads.probes import SEED, TEXTS, HeadProbe, TokenPool
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.tasks import AnyTextModel, TextClassifier, Translator
from glassformer.text.rows import Row

LONGEST = 128
"""Maximum length in tokens of a row of held-out text or of a window; memory grows with the square of the length."""
STAND_IN = 64
"""Maximum number of random tokens in a row if there is no text."""
SHORTEST = 3
"""Minimum number of tokens in a row of held-out text, a window, or a row of random tokens."""


def held_out_probe(rows: Sequence[Row]) -> HeadProbe | None:
    """Return a probe of at most `TEXTS` evenly spaced rows of a run's validation split.

    Rows of fewer than `SHORTEST` tokens are left out; if no row remains, the result is None.

    Args:
        rows: held-out rows of the run's task: running text, masked texts, labelled texts, or pairs.
    """
    row_count = min(TEXTS, len(rows))
    pairs = [_ids(rows[number * len(rows) // row_count]) for number in range(row_count)]
    long_enough = [(source, target) for source, target in pairs if min(len(source), len(target)) >= SHORTEST]
    return _text_probe(long_enough, "of the run's validation text") if long_enough else None


def _ids(row: Row) -> tuple[Ids, Ids]:
    """Return the encoder and decoder input ids of a row; they are the same for tasks without a source."""
    ids = row.inputs if row.loss_mask is None else row.targets  # the targets of a masked row are the text without masks
    input_ids: Ids = ids[:LONGEST].astype(np.int64)
    if row.source is None:
        return input_ids, input_ids
    source_ids: Ids = row.source[:LONGEST].astype(np.int64)
    return source_ids, input_ids


def _text_probe(rows: Sequence[tuple[Ids, Ids]], origin: str) -> HeadProbe:
    has_targets = any(source is not target for source, target in rows)
    description = f"{counted(len(rows), 'rows')} {origin}"
    return HeadProbe("text", description, [row for row, _ in rows], [row for _, row in rows] if has_targets else None)


def given_probe(model: AnyTextModel, texts: Sequence[str], name: str) -> HeadProbe:
    """Return a probe of given texts, one per row.

    A text for a translator may have its target after a tab; otherwise the model generates the target.

    Args:
        model: text model of the run.
        texts: the texts, at least one.
        name: name of the texts in errors and reports.

    Raises:
        GlassError: a text is empty; or a text or a target is longer than the context, which must also have room for a
            special token.
    """
    rows = []
    for number, text in enumerate(texts, start=1):
        text_name = name if len(texts) == 1 else f"line {number} of {name}"
        source, tab, target = text.partition("\t") if isinstance(model, Translator) else (text, "", "")
        source_tokenizer = model.source_tokenizer
        ids = _fitting(source_tokenizer.encode(source), model, text_name)
        if not isinstance(model, Translator):
            start = isinstance(model, TextClassifier) or model.config.data.windows == "documents"
            row = np.array([model.tokenizer.start_id] * start + ids, dtype=np.int64)
            rows.append((row, row))
            continue
        if not tab:
            target = model.generate([source], model.config.sample)[0].text
        target_ids = _fitting(
            model.tokenizer.encode(target) or [model.tokenizer.end_id], model, f"the target of {text_name}"
        )
        rows.append((np.array([*ids, source_tokenizer.end_id]), np.array([model.tokenizer.end_id, *target_ids])))
    return _text_probe(rows, f"of {name}")


def window_probe(model: AnyTextModel, text: str, name: str) -> HeadProbe:
    """Return a probe of at most `TEXTS` evenly spaced windows of a text, for a run with `data.windows = "stream"`.

    Raises:
        GlassError: the text has fewer than `SHORTEST` tokens.
    """
    ids = np.array(model.tokenizer.encode(text), dtype=np.int64)
    if len(ids) < SHORTEST:
        raise GlassError(f"{name} has {counted(len(ids), 'tokens')}", f"Give a text of at least {SHORTEST} tokens.")
    length = min(LONGEST, model.config.model.context, len(ids))
    windows = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)]
    row_count = min(TEXTS, len(windows))
    rows = [windows[number * len(windows) // row_count] for number in range(row_count)]
    return _text_probe([(row, row) for row in rows], f"of {name}")


def _fitting(ids: list[int], model: AnyTextModel, text_name: str) -> list[int]:
    """Return the ids; raise a `GlassError` if there are none, or more than the context minus 1."""
    if not ids:
        raise GlassError(f"{text_name} is empty", "Give a text.")
    max_tokens = model.config.model.context - 1
    if len(ids) > max_tokens:
        raise GlassError(
            f"{text_name} has {len(ids):,} tokens, but the model reads at most {max_tokens:,} "
            "(model.context, less one special token)",
            "Give a shorter text, or a file with several shorter lines.",
        )
    return ids


def random_text(model: Model, source: TokenPool, target: TokenPool) -> HeadProbe:
    """Return a probe of random tokens, for a run whose text is not available."""
    generator = np.random.Generator(np.random.Philox(SEED + 1))
    length = max(SHORTEST, min(STAND_IN, model.config.context - 1))

    def sample(token_pool: TokenPool) -> Ids:
        ids: Ids = generator.choice(token_pool.pool, length)
        return ids

    rows: list[tuple[Ids, Ids]] = []
    for _ in range(TEXTS):
        if isinstance(model, EncoderDecoder):
            rows.append((np.append(sample(source), source.end), np.insert(sample(target), 0, target.end)))
        else:
            row = np.insert(sample(source), 0, source.start)
            rows.append((row, row))
    return _text_probe(rows, "of random tokens, as no text is available")
