"""The pictures of `glass attribute --plot`: a lens, and a rollout."""

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
"""Side by side in the picture of a lens."""


def plot_lens(found: Lens, subject: Subject, row: Sequence[str], path: Path) -> None:
    """A column for each answer, a row for each layer, the embedding at the bottom.

    Args:
        found: the lens.
        subject: what the model reads; it knows the names of answers.
        row: the tokens that stand over the answers.
        path: of the picture.

    Raises:
        GlassError: there are too many answers for a picture.
    """
    from glassformer.inspection.plots import draw_lens, save

    if len(found.outputs) > MOST_ANSWERS:
        raise GlassError(
            f"--plot would have {len(found.outputs):,} columns, and has room for {MOST_ANSWERS}",
            "Give a shorter text, or one answer by --place.",
        )
    best = found.top[:, :, 0].tolist()  # (L+1, P)
    texts = [[subject.name(id) for id in answers] for answers in best]
    tokens = ["all places" if len(output.reads) > 1 else row[output.place] for output in found.outputs]
    fonts = _fonts([*tokens, *(text for answers in texts for text in answers)])
    ids = subject.ids if subject.target_ids is None else subject.target_ids
    words = [fonts.labels(*pair) for pair in zip(texts, best, strict=True)]
    columns = fonts.labels(tokens, [ids[output.place] for output in found.outputs])
    layers = ["embedded", *(f"layer {layer}" for layer in range(len(best) - 1))]
    title = "logit lens: the likeliest answer after each layer"
    save(draw_lens(found.probabilities[:, :, 0].numpy(), words, layers, columns, title, fonts.families), path)


def plot_rollout(found: Rollout, layer: int, subject: Subject, path: Path) -> None:
    """The shares of all places, up to a layer: of an encoder-decoder in the tokens of the source."""
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
    labels = MapLabels(fonts.labels(rows, numbers), fonts.labels(texts, ids), "places", f"{of} that reach them")
    title = f"attention rollout up to layer {layer}"
    save(draw_rollout(shares.numpy(), labels, title, scale="sqrt", families=fonts.families), path)


def _fonts(texts: Sequence[str]) -> Fonts:
    """For these texts; says what cannot be drawn."""
    from glassformer.inspection.plots import find_fonts

    fonts = find_fonts(texts)
    if message := fonts.message():
        print(message, file=sys.stderr)
    return fonts
