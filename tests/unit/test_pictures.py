"""Pictures from plain arrays: pooling, painting and placement, read back from the pixels; fonts; files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fontTools.feaLib.builder import addOpenTypeFeaturesFromString
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from glassformer.base.errors import GlassError
from glassformer.inspection.plots import (
    SCALES,
    Floats,
    MapLabels,
    draw_curve,
    draw_lens,
    draw_maps,
    draw_roles,
    draw_rollout,
    find_fonts,
    pooled,
    refuse_no_picture,
    save,
)
from glassformer.inspection.plots.cells import FLOOR, MASKED, painted, positions
from glassformer.inspection.plots.sheet import text_width

WORDS = ("It", "was", "the", "best", "of")


def causal(length: int) -> Floats:
    """Return random causal weights, NaN where masked."""
    weights = np.tril(np.random.default_rng(length).random((length, length)) + 0.01)
    weights /= weights.sum(axis=1, keepdims=True)
    weights[np.triu_indices(length, 1)] = np.nan
    return weights


def previous(length: int) -> Floats:
    """Return the weights of a head that attends only to the previous token."""
    weights = np.eye(length, k=-1)
    weights[0, 0] = 1.0
    weights[np.triu_indices(length, 1)] = np.nan
    return weights


def numbered(length: int) -> MapLabels:
    return MapLabels([f"t{n}" for n in range(length)], [f"t{n}" for n in range(length)])


def seen(figure: Figure, axes: int, rows: int, columns: int) -> np.ndarray:
    """Return the colours in the middle of the cells of a rendered map, (rows, columns, 4)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    box = figure.axes[axes].get_window_extent()
    ys = pixels.shape[0] - (box.y1 - (np.arange(rows) + 0.5) * box.height / rows)
    xs = box.x0 + (np.arange(columns) + 0.5) * box.width / columns
    return pixels[ys.astype(int)][:, xs.astype(int)]


@pytest.mark.parametrize("block", [1, 2, 3, 5, 17])
def test_a_pooled_cell_is_the_largest_weight_of_its_block(block: int) -> None:
    weights = np.random.default_rng(block).random((13, 7))
    weights[np.random.default_rng(0).random((13, 7)) < 0.4] = np.nan
    weights[:5, 5:] = np.nan
    found = pooled(weights, block)
    assert np.nanmax(found) == np.nanmax(weights)
    for (row, column), value in np.ndenumerate(found):
        cells = weights[row * block : (row + 1) * block, column * block : (column + 1) * block]
        kept = cells[~np.isnan(cells)]
        assert value == kept.max() if kept.size else np.isnan(value)


def test_a_stripe_survives_pooling_and_the_first_row_is_kept_separate() -> None:
    found = pooled(previous(1024), 4)
    assert found.shape == (256, 256)
    assert (np.diag(found) == 1).all()
    assert np.isnan(found[np.triu_indices(256, 1)]).all()


def test_scales_and_the_colour_of_what_is_masked() -> None:
    weights = np.array([[0.0, FLOOR, 0.01, 0.25, 1.0]])
    expected = {"linear": [0, FLOOR, 0.01, 0.25, 1], "sqrt": [0, 0.01, 0.1, 0.5, 1]}
    for scale, places in expected.items():
        np.testing.assert_allclose(positions(weights, scale)[0], places, atol=1e-12)  # type: ignore[arg-type]
    np.testing.assert_allclose(positions(weights, "log")[0, [0, 1, 2, 4]], [0, 0, 0.5, 1], atol=1e-12)
    for scale in SCALES:
        pixels = painted(np.array([[np.nan, 0.0, 1.0]]), scale)
        assert tuple(pixels[0, 0]) == MASKED
        assert len({tuple(pixel) for pixel in pixels[0]}) == 3


@pytest.mark.thorough
@pytest.mark.parametrize("length", [1, 5, 86, 300])
def test_every_weight_is_in_its_cell(length: int) -> None:
    weights = causal(length)
    figure = draw_rollout(weights, numbered(length), scale="sqrt")
    cells = pooled(weights, 2 if length > 256 else 1)
    np.testing.assert_array_equal(seen(figure, 0, *cells.shape), painted(cells, "sqrt"))


def test_rows_are_queries_also_if_source_and_target_differ() -> None:
    weights = np.zeros((3, 5))
    weights[0, 4] = weights[1, 2] = weights[2, 0] = 1.0
    figure = draw_rollout(weights, MapLabels(["x", "y", "z"], WORDS))
    lit = (seen(figure, 0, 3, 5) == painted(np.ones((1, 1)), "linear")).all(axis=-1)
    np.testing.assert_array_equal(lit, weights == 1)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y", "z"]
    assert [label.get_text() for label in axes.get_xticklabels()] == list(WORDS)
    assert axes.get_ylim() == (3, 0)  # the first row is at the top


def test_a_grid_has_each_map_in_position_and_gaps_for_missing_ones() -> None:
    maps = [causal(11), previous(11), causal(11) ** 2]
    grid = [("dec.0.self", [("0", maps[0]), ("1", maps[1])]), ("dec.1.self", [("0", None), ("1", maps[2])])]
    figure = draw_maps("all heads", grid, size=64)
    for number, weights in enumerate(maps):
        np.testing.assert_array_equal(seen(figure, number, 11, 11), painted(weights, "linear"))
    boxes = [axes.get_window_extent() for axes in figure.axes[:3]]
    assert boxes[1].x0 == boxes[2].x0 > boxes[0].x1
    assert boxes[0].y0 == boxes[1].y0 > boxes[2].y1
    assert min(box.width for box in boxes) >= 64


def test_maps_of_a_layer_have_labels_only_on_the_left_and_below() -> None:
    grid = [("", [(f"head {head}", causal(5)) for head in heads]) for heads in ((0, 1, 2), (3, 4))]
    figure = draw_maps("a layer", grid, labels=MapLabels([*"abcde"], [*"vwxyz"]), size=256)
    shown = [
        ["".join(label.get_text() for label in labels) for labels in (axes.get_yticklabels(), axes.get_xticklabels())]
        for axes in figure.axes[:5]
    ]
    assert shown == [["abcde", ""], ["", ""], ["", "vwxyz"], ["abcde", "vwxyz"], ["", "vwxyz"]]


def test_pictures_of_long_texts_are_pooled_with_a_note_and_a_ruler() -> None:
    figure = draw_rollout(previous(1024), numbered(1024))
    assert any("each cell is the maximum of 4 x 4" in text.get_text() for text in figure.texts)
    marks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert marks == [str(number) for number in range(0, 1024, 100)]
    assert figure.axes[0].get_window_extent().width == 1024
    short = draw_rollout(previous(40), numbered(40))
    assert not any("maximum" in text.get_text() for text in short.texts)
    assert len(short.axes[0].get_xticklabels()) == 40


@pytest.mark.parametrize("length", [1, 2, 31, 300])
def test_nothing_is_drawn_outside_or_overlapping(length: int) -> None:
    figure = draw_rollout(causal(length), numbered(length), title="a title that is longer than a small map")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [text.get_window_extent() for text in figure.texts]
    boxes = [box for box in boxes if box is not None and box.width > 0]
    for number, box in enumerate(boxes):
        assert 0 <= box.x0 <= box.x1 <= figure.bbox.width
        assert 0 <= box.y0 <= box.y1 <= figure.bbox.height
        for other in boxes[number + 1 :]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(across, down) < 2, (box, other)


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_the_same_input_gives_the_same_bytes(ending: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}{ending}" for name in "ab"]
    for path in paths:
        save(draw_rollout(causal(7), numbered(7)), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a" + ending, "b" + ending]


def test_labels_of_all_scripts_are_drawn_or_shown_by_their_ids_without_a_message(tmp_path: Path) -> None:
    texts = ["سلام", "שלום", "$x$", "␣the", "\u200b", "\ue9ff", "❤\ufe0f", "a" * 40]  # U+E9FF: no font has it
    fonts = find_fonts(texts)
    assert fonts.missing == {"\ue9ff"}
    labels = fonts.labels(texts, range(100, 108))
    assert labels == ["سلام", "שלום", "$x$", "␣the", "#104", "#105", "❤", "a" * 15 + "…"]
    assert str(fonts.message()).count("\n") == 0
    assert find_fonts(["plain"]).message() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw_rollout(causal(8), MapLabels(labels, labels), families=fonts.families)
        save(figure, tmp_path / "a.png")
        save(figure, tmp_path / "a.svg")


@pytest.fixture
def bangla_font(tmp_path: Path) -> Iterator[str]:
    """Write a font of boxes: wide for ক and ষ, narrow for their conjunct with a hasanta."""
    widths = {".notdef": 500, "ka": 2000, "hasanta": 0, "ssa": 2000, "kassa": 700}
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(list(widths))
    builder.setupCharacterMap({0x995: "ka", 0x9CD: "hasanta", 0x9B7: "ssa"})
    glyphs = {}
    for name, width in widths.items():
        pen = TTGlyphPen(None)
        for step, point in enumerate([(50, 0), (50, 600), (width - 50, 600), (width - 50, 0)] if width else []):
            (pen.lineTo if step else pen.moveTo)(point)
        if width:
            pen.closePath()
        glyphs[name] = pen.glyph()
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics({name: (width, 50) for name, width in widths.items()})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Boxes of Bangla", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200)
    builder.setupPost()
    feature = "languagesystem bng2 dflt; feature akhn { sub ka hasanta ssa by kassa; } akhn;"
    addOpenTypeFeaturesFromString(builder.font, feature)
    path = tmp_path / "boxes.ttf"
    builder.save(path)
    before = list(fontManager.ttflist)
    fontManager.ttflist[:] = [entry for entry in before if 0x995 not in _characters(entry.fname)]
    fontManager.addfont(path)
    yield "Boxes of Bangla"
    fontManager.ttflist[:] = before


def _characters(path: str) -> set[int]:
    from matplotlib.ft2font import FT2Font

    return set(FT2Font(path).get_charmap())


def test_bangla_is_shaped_where_a_font_has_it(bangla_font: str) -> None:
    fonts = find_fonts(["␣ক্ষ", "\ue9ff"])
    assert fonts.families == ("DejaVu Sans", bangla_font)
    assert fonts.missing == {"\ue9ff"}
    assert fonts.labels(["␣ক্ষ", "ষ", "\ue9ff"], [7, 8, 9]) == ["␣ক্ষ", "ষ", "#9"]
    ka, ssa, conjunct = (text_width(word, 100, [bangla_font]) for word in ("ক", "ষ", "ক্ষ"))
    assert conjunct < ka / 2
    assert conjunct < ssa / 2


def test_arabic_letters_are_joined() -> None:
    apart = sum(text_width(letter, 100, ["DejaVu Sans"]) for letter in "لا")
    assert text_width("لا", 100, ["DejaVu Sans"]) < 0.8 * apart


def test_a_lens_has_the_first_layer_at_the_bottom_and_words_where_they_belong() -> None:
    shares = np.array([[0.1, 0.2, 0.9], [0.3, 0.4, 0.5]])
    words = [["a", "b", "c"], ["d", "e", "f"]]
    figure = draw_lens(shares, words, ["embedding", "after 0"], ["x", "y", "z"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["after 0", "embedding"]
    cells = [text for text in figure.texts if text.get_text() in "abcdef"]
    assert [text.get_text() for text in cells] == list("defabc")
    assert [text.get_color() for text in cells] == ["white"] * 5 + ["black"]
    with pytest.raises(GlassError, match="words of shape"):
        draw_lens(shares, words[:1], ["embedding", "after 0"], ["x", "y", "z"])


def test_roles_show_score_and_chance_and_a_frame_if_earned() -> None:
    scores = np.array([[0.9, np.nan], [0.2, -0.3]])
    chances = np.array([[0.05, np.nan], [0.05, np.nan]])
    earned = np.array([[True, False], [False, False]])
    figure = draw_roles(["dec.0.self.0", "dec.0.self.1"], ["previous", "copying"], scores, chances, earned)
    shown = {text.get_text() for text in figure.texts}
    assert {"0.90 / 0.05", "0.20 / 0.05", "-0.30", "not measured"} <= shown
    (frame,) = figure.axes[0].lines
    assert 0 < np.min(frame.get_xdata()) < np.max(frame.get_xdata()) < 1
    with pytest.raises(GlassError, match="chances of shape"):
        draw_roles(["a", "b"], ["previous", "copying"], scores, chances[:1], earned)


def test_several_curves_are_drawn_as_mean_and_band() -> None:
    figure = draw_curve(
        {"one": [[(0, 1.0), (2, 3.0)]], "random": [[(0, 1.0), (2, 4.0)], [(0, 2.0), (2, 8.0)]]}, "x", "y"
    )
    axes = figure.axes[0]
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1.0, 3.0], [1.5, 6.0]]  # type: ignore[union-attr]
    assert axes.lines[1].get_label() == "random, mean of 2"
    assert len(axes.collections) == 1


def test_a_picture_that_cannot_be_written_is_refused_without_damage(tmp_path: Path) -> None:
    for name, words in {"a.jpg": ".png or .svg", "no/a.png": "Create it first", "folder.png": "name of a file"}.items():
        (tmp_path / "folder.png").mkdir(exist_ok=True)
        with pytest.raises(GlassError, match=words):
            refuse_no_picture(tmp_path / name)
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    figure = draw_rollout(causal(3), numbered(3))
    figure.set_size_inches(1e6, 1e6)  # more than the picture can show
    with pytest.raises((ValueError, MemoryError)):
        save(figure, path)
    with pytest.raises(GlassError, match=r"a\.pdf is not the name of a picture"):
        save(figure, tmp_path / "a.pdf")
    assert path.read_bytes() == b"old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.png", "folder.png"]
