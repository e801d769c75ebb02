"""Pictures of `glass attribute --plot`: a logit lens, and attention rollout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError

if TYPE_CHECKING:
    from glassformer.inspection.attribution import Lens, Rollout
    from glassformer.inspection.explain.subject import Subject
    from glassformer.inspection.plots import Fonts

MOST_ANSWERS = 128
"""Maximum number of columns in the picture of a lens."""


def plot_lens(lens: Lens, subject: Subject, row: Sequence[str], path: Path) -> None:
    """Draw a logit lens with a column for each answer, and a row for the embedding (at the bottom) and for each layer.

    Args:
        lens: the logit lens.
        subject: the model's input, with the names of tokens and labels.
        row: tokens of the target of an encoder-decoder, or of the text; they label the columns.
        path: path of the picture.

    Raises:
        GlassError: there are more than `MOST_ANSWERS` answers.
    """
    from glassformer.inspection.plots import draw_lens, save

    if len(lens.outputs) > MOST_ANSWERS:
        raise GlassError(
            f"--plot would have {len(lens.outputs):,} columns, but at most {MOST_ANSWERS} are allowed",
            "Give a shorter text, or one answer with --position.",
        )
    best = lens.top[:, :, 0].tolist()  # (L+1, P)
    texts = [[subject.name(id) for id in answers] for answers in best]
    tokens = ["all positions" if len(output.reads) > 1 else row[output.place] for output in lens.outputs]
    fonts = _fonts([*tokens, *(text for answers in texts for text in answers)])
    ids = subject.ids if subject.target_ids is None else subject.target_ids
    answer_labels = [fonts.labels(*pair) for pair in zip(texts, best, strict=True)]
    columns = fonts.labels(tokens, [ids[output.place] for output in lens.outputs])
    layers = ["embedded", *(f"layer {layer}" for layer in range(len(best) - 1))]
    title = "logit lens: the likeliest answer after each layer"
    save(draw_lens(lens.probabilities[:, :, 0].numpy(), answer_labels, layers, columns, title, fonts.families), path)


def plot_rollout(rollout: Rollout, layer: int, subject: Subject, path: Path) -> None:
    """Draw the attention rollout up to a layer as a map, with a row for each position and a column for each token.

    For an encoder-decoder, the rows are target positions, and the columns are source tokens.
    """
    from glassformer.inspection.plots import MapLabels, draw_rollout, save

    texts = subject.labels
    ids = subject.ids
    rows = texts
    row_ids = ids
    weights = rollout.row[layer]  # (T, T)
    if rollout.source is not None:
        assert subject.target_labels is not None
        assert subject.target_ids is not None
        rows = subject.target_labels
        row_ids = subject.target_ids
        weights = rollout.source[layer]  # (T, S)
    elif subject.model.config.family == "decoder":
        future = weights.new_ones(weights.shape).triu(1).bool()  # (T, T)
        weights = weights.masked_fill(future, float("nan"))  # (T, T)
    fonts = _fonts([*rows, *texts])
    column_kind = "source tokens" if rollout.source is not None else "tokens"
    labels = MapLabels(
        fonts.labels(rows, row_ids), fonts.labels(texts, ids), "positions", f"{column_kind} that reach them"
    )
    title = f"attention rollout up to layer {layer}"
    save(draw_rollout(weights.numpy(), labels, title, scale="sqrt", families=fonts.families), path)


def _fonts(texts: Sequence[str]) -> Fonts:
    """Return fonts for the texts; print a warning about characters that cannot be drawn."""
    from glassformer.inspection.plots import find_fonts

    fonts = find_fonts(texts)
    if message := fonts.message():
        print(message, file=sys.stderr)
    return fonts
