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


def plot_lens(found: Lens, subject: Subject, row: Sequence[str], path: Path) -> None:
    """Draw a logit lens with a column for each answer, and a row for the embedding (at the bottom) and for each layer.

    Args:
        found: the logit lens.
        subject: the model's input; it names tokens and labels.
        row: input tokens, which label the columns.
        path: path of the picture.

    Raises:
        GlassError: there are more than `MOST_ANSWERS` answers.
    """
    from glassformer.inspection.plots import draw_lens, save

    if len(found.outputs) > MOST_ANSWERS:
        raise GlassError(
            f"--plot would have {len(found.outputs):,} columns, but at most {MOST_ANSWERS} are allowed",
            "Give a shorter text, or one answer with --position.",
        )
    best = found.top[:, :, 0].tolist()  # (L+1, P)
    texts = [[subject.name(id) for id in answers] for answers in best]
    tokens = ["all positions" if len(output.reads) > 1 else row[output.place] for output in found.outputs]
    fonts = _fonts([*tokens, *(text for answers in texts for text in answers)])
    ids = subject.ids if subject.target_ids is None else subject.target_ids
    words = [fonts.labels(*pair) for pair in zip(texts, best, strict=True)]
    columns = fonts.labels(tokens, [ids[output.place] for output in found.outputs])
    layers = ["embedded", *(f"layer {layer}" for layer in range(len(best) - 1))]
    title = "logit lens: the likeliest answer after each layer"
    save(draw_lens(found.probabilities[:, :, 0].numpy(), words, layers, columns, title, fonts.families), path)


def plot_rollout(found: Rollout, layer: int, subject: Subject, path: Path) -> None:
    """Draw the attention rollout of each position up to a layer; for an encoder-decoder, from the source tokens."""
    from glassformer.inspection.plots import MapLabels, draw_rollout, save

    texts = subject.labels
    ids = subject.ids
    rows = texts
    numbers = ids
    shares = found.own[layer]  # (T, T)
    if found.source is not None:
        assert subject.target_labels is not None
        assert subject.target_ids is not None
        rows = subject.target_labels
        numbers = subject.target_ids
        shares = found.source[layer]  # (T, S)
    elif subject.model.config.family == "decoder":
        ahead = shares.new_ones(shares.shape).triu(1).bool()  # (T, T)
        shares = shares.masked_fill(ahead, float("nan"))  # (T, T)
    fonts = _fonts([*rows, *texts])
    of = "source tokens" if found.source is not None else "tokens"
    labels = MapLabels(fonts.labels(rows, numbers), fonts.labels(texts, ids), "positions", f"{of} that reach them")
    title = f"attention rollout up to layer {layer}"
    save(draw_rollout(shares.numpy(), labels, title, scale="sqrt", families=fonts.families), path)


def _fonts(texts: Sequence[str]) -> Fonts:
    """Return fonts for the texts; print a warning about characters that cannot be drawn."""
    from glassformer.inspection.plots import find_fonts

    fonts = find_fonts(texts)
    if message := fonts.message():
        print(message, file=sys.stderr)
    return fonts
