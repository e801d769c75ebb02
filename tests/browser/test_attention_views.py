"""The attention views show the library's weights: map, score, all heads, one token, alignment."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from glassformer.inspection.explain import Subject, unshortened_subject_of
from glassformer.inspection.heads.numbers import entropy
from glassformer.inspection.heads.of_run import heads_of_run
from glassformer.inspection.plots import Floats, find_site
from glassformer.inspection.plots.cells import pooled
from glassformer.inspection.plots.run_maps import read_maps
from glassformer.inspection.sites import find_head
from glassformer.inspection.traced import AttentionTrace
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel, Translator
from tests.browser.conftest import Visit
from tests.browser.reading import copied, expect_in_url, settled, turn, value, values
from tests.browser.tiny_runs import TEXTS, long_text

pytestmark = pytest.mark.thorough

NEAR = 1e-6
HEADS = {  # run -> a head of each type of attention layer in its model
    "book": ["dec.1.self.0"],
    "post": ["dec.0.self.1"],
    "fill": ["enc.0.self.1"],
    "mails": ["enc.0.self.0"],
    "bangla": ["dec.0.self.0"],
    "en-de": ["enc.1.self.0", "dec.0.self.1", "dec.1.cross.1"],
}
CASES = [(run, head) for run, heads in HEADS.items() for head in heads]
Model = Callable[[str], AnyTextModel]


@pytest.fixture(scope="module")
def subject(model: Model) -> Callable[[str], Subject]:
    return lambda run: unshortened_subject_of(model(run), TEXTS[run])


def traced(subject: Subject, name: str) -> tuple[AttentionTrace, int]:
    """Return the trace of a head's attention layer, and the head's index in it."""
    head = find_head(subject.model, name)
    trace = subject.trace()
    stack = trace.source if head.site.stack == "enc" and trace.source is not None else trace.stack
    block = stack.blocks[head.site.layer]
    part = block.cross if head.site.part == "cross" else block.attention
    assert part is not None
    return part, part.heads.index(head.head)


def weights_of(subject: Subject, name: str) -> Floats:
    """Return the (T, S) weights of a head, NaN where masked."""
    part, place = traced(subject, name)
    found = part.pattern[0, place].masked_fill(~part.allowed[0, 0].expand_as(part.pattern[0, place]), math.nan)
    return found.double().numpy()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def copied_map(page: Page, shape: tuple[int, ...]) -> Floats:
    """Return the matrix that the button "Copy numbers" copies."""
    found = [float(row["weight"] or "nan") for row in rows_of(copied(page))]
    return np.array(found).reshape(shape)


def colours(page: Page) -> Floats:
    """Return the colors of the view's first canvas, (rows, columns, 3)."""
    found = page.evaluate(
        """() => {
          const canvas = document.querySelector("section.view canvas"), {width, height} = canvas;
          return [height, width, ...canvas.getContext("2d").getImageData(0, 0, width, height).data];
        }"""
    )
    return np.array(found[2:], dtype=np.float64).reshape(found[0], found[1], 4)[:, :, :3]


def test_the_map_equals_the_librarys(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("attention", CASES[0][0])
    for run, head in CASES:
        expected = weights_of(subject(run), head)
        query = len(expected) - 1
        key = 0
        turn(shown, "attention", run, TEXTS[run], head=head, q=query, k=key)
        found = copied_map(shown, expected.shape)
        np.testing.assert_allclose(found, expected, atol=NEAR, err_msg=f"{run} {head}")
        assert value(shown, ".sum") == pytest.approx(np.nansum(expected[query]), abs=NEAR)
        assert value(shown, ".largest") == pytest.approx(np.nanmax(expected), abs=NEAR)
        assert value(shown, ".read") == pytest.approx(expected[query, key], abs=NEAR)
        assert values(shown, ".strongest") == pytest.approx(sorted(expected[query], reverse=True)[:6], abs=NEAR)
        assert "attention computed step by step" in shown.inner_text(".view footer")


def test_masked_cells_are_not_drawn_as_zeros(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("attention", "book", head="dec.0.self.0")
    expected = weights_of(subject("book"), "dec.0.self.0")
    drawn = colours(shown)
    assert drawn.shape[:2] == expected.shape
    is_masked = (drawn == drawn[0, 1]).all(axis=2)
    assert np.array_equal(is_masked, np.isnan(expected))
    assert "hidden by the mask" in shown.inner_text("aside")
    turn(shown, "attention", "fill", TEXTS["fill"])
    assert "hidden by the mask" not in shown.inner_text("aside")


def test_a_click_on_a_cell_opens_its_score(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("attention", "book", head="dec.1.self.1")
    shape = weights_of(subject("book"), "dec.1.self.1").shape
    box = shown.locator("section.view canvas").bounding_box()
    assert box is not None
    query = 9
    key = 4
    place = (box["width"] * (key + 0.5) / shape[1], box["height"] * (query + 0.5) / shape[0])
    shown.locator("section.view canvas").click(position={"x": place[0], "y": place[1]})
    shown.wait_for_selector("h2:text-is('Score anatomy')")
    settled(shown)
    expect_in_url(shown, ".q=9", ".k=4", ".head=dec.1.self.1")
    assert value(shown, ".steps .weight") == pytest.approx(
        weights_of(subject("book"), "dec.1.self.1")[query, key], abs=NEAR
    )
    shown.go_back()
    shown.wait_for_selector("h2:text-is('Attention map')")


def test_the_steps_of_a_score_are_shown(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("score", CASES[0][0])
    for run, head in CASES:
        part, place = traced(subject(run), head)
        expected = weights_of(subject(run), head)
        query = len(expected) - 1
        key = min(2, len(expected[0]) - 1)
        turn(shown, "score", run, TEXTS[run], head=head, q=query, k=key)
        q = part.q[0, place, query].double()
        k = part.k[0, part.kv_index[place], key].double()
        assert value(shown, ".steps .dot") == pytest.approx(float(q @ k), abs=NEAR)
        assert value(shown, ".steps .scaled") == pytest.approx(float(part.scaled[0, place, query, key]), abs=NEAR)
        bias = 0.0 if part.bias is None else float(part.bias[0, place, query, key])
        assert value(shown, ".steps .bias") == pytest.approx(bias, abs=NEAR)
        assert value(shown, ".steps .weight") == pytest.approx(expected[query, key], abs=NEAR)
        assert values(shown, "table") == pytest.approx(np.nan_to_num(expected[query]), abs=NEAR)
        products = [float(row["product"]) for row in rows_of(copied(shown)) if row["what"] == "product"]
        assert products == pytest.approx((q * k).tolist(), abs=NEAR)


def test_a_masked_key_has_no_score(page: Visit) -> None:
    shown = page("score", "book", head="dec.0.self.0", q=2, k=5)
    assert "masked key" in shown.inner_text(".steps")
    assert value(shown, ".steps .weight") == 0


def test_scores_can_be_divided_by_a_factor(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("score", "book", head="dec.1.self.0", q=8, k=2)
    assert shown.locator(".other").count() == 0
    shown.get_by_label("Divide all scores by").fill("0.30")
    shown.wait_for_selector(".other")
    divided = 10**0.3
    assert value(shown, ".steps .weight") == pytest.approx(
        weights_of(subject("book"), "dec.1.self.0")[8, 2], abs=NEAR
    ), "the model's own numbers stay"
    part, place = traced(subject("book"), "dec.1.self.0")
    scores = part.scaled[0, place, 8, :9].double().numpy() / round(divided, 3)
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    said = [float(text.removesuffix(" %")) for text in shown.locator(".other-number").all_inner_texts()[:9]]
    assert said == pytest.approx(100 * expected, abs=0.06)
    shown.get_by_role("button", name="Reset to 1").click()
    assert shown.locator(".other").count() == 0


def test_all_heads_show_their_roles(page: Visit, runs: dict[str, Path], model: Model) -> None:
    shown = page("heads", "book")
    report = heads_of_run(OpenedRun.load(runs["book"]))
    expected = {str(found.head): found for found in report.heads}
    shown.wait_for_selector("section.view .score")
    rows = rows_of(copied(shown))
    assert {row["head"] for row in rows} == set(expected)
    for row in rows:
        role = expected[row["head"]].roles[row["role"]]
        assert float(row["score"]) == pytest.approx(role.score, abs=NEAR)
        assert float(row["chance"] or "nan") == pytest.approx(
            math.nan if role.chance is None else role.chance, abs=NEAR, nan_ok=True
        )
        assert row["earned"] == str(role.earned).lower()
    assert shown.locator("section.view canvas").count() == len(expected)
    assert all(float(row["importance"]) for row in rows)


def test_heads_are_sorted_and_open_their_map(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("heads", "en-de", sort="entropy")
    own = subject("en-de")
    sites = [
        find_site(own.model, name)
        for name in ("enc.0.self", "enc.1.self", "dec.0.self", "dec.0.cross", "dec.1.self", "dec.1.cross")
    ]
    maps = read_maps(own, sites, 64).maps
    spread = {str(head): float(entropy(np.nan_to_num(cells)).mean()) for head, cells in maps.items()}
    order = sorted(spread, key=lambda head: -spread[head])
    assert shown.locator("section.view li .name").all_inner_texts() == order
    assert values(shown, "section.view li") == pytest.approx([spread[head] for head in order], abs=NEAR)
    shown.locator("section.view li button").nth(1).click()
    shown.wait_for_selector("h2:text-is('Attention map')")
    settled(shown)
    expect_in_url(shown, f".head={order[1]}")
    assert shown.inner_text("aside h3") == order[1]


def test_one_query_is_shown_in_all_heads(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("focus", CASES[0][0])
    for run, head in CASES:
        expected = weights_of(subject(run), head)
        query = len(expected) - 2
        turn(shown, "focus", run, TEXTS[run], q=query, head=head, stack=head[:3])
        row = np.nan_to_num(expected[query])
        best = np.sort(row)[::-1][:8]
        assert values(shown, ".top .weight") == pytest.approx(best[best > 0], abs=NEAR)
        assert value(shown, ".top .rest") == pytest.approx(1 - best.sum(), abs=NEAR)
        assert value(shown, ".top .whole") == pytest.approx(1, abs=NEAR)
        assert shown.locator(".arcs path").count() == len(best[best > 0])
        assert value(shown, ".strips .read") == pytest.approx(best[0], abs=NEAR), "the strip that is marked"


def test_a_button_selects_another_token(page: Visit, subject: Callable[[str], Subject]) -> None:
    shown = page("focus", "book", head="dec.0.self.1")
    shown.locator(".tokens button").nth(3).click()
    settled(shown)
    expect_in_url(shown, ".q=3")
    row = np.nan_to_num(weights_of(subject("book"), "dec.0.self.1")[3])
    assert values(shown, ".top .weight") == pytest.approx(sorted(row[:4], reverse=True), abs=NEAR)


@pytest.mark.parametrize("head", [None, 1])
def test_the_alignment_equals_cross_attention(
    head: int | None, page: Visit, subject: Callable[[str], Subject], model: Model
) -> None:
    shown = page("alignment", "en-de", site="dec.0.cross", of=-1 if head is None else head)
    part, _ = traced(subject("en-de"), "dec.0.cross.0")
    weights = part.pattern[0].double().numpy()
    expected = weights.mean(axis=0) if head is None else weights[head]
    rows = rows_of(copied(shown))
    found = np.array([float(row["value"]) for row in rows if row["what"] == "weight"]).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=NEAR)
    assert values(shown, ".coverage") == pytest.approx(expected.sum(axis=0), abs=NEAR)
    assert values(shown, ".entropy") == pytest.approx(entropy(expected), abs=NEAR)
    translator = model("en-de")
    assert isinstance(translator, Translator)
    settings = translator.config.sample.replace(beams=4, temperature=0.0, repetition_penalty=1.0)
    best = translator.n_best([TEXTS["en-de"]], settings)[0]
    assert values(shown, ".score") == pytest.approx([each.score for each in best], abs=NEAR)
    texts = [text or "nothing" for text in (each.text for each in best)]
    assert shown.locator("td .link").all_inner_texts() == texts


def test_a_hypothesis_can_become_the_target(page: Visit) -> None:
    shown = page("alignment", "en-de")
    text = shown.locator("td .link").nth(1).inner_text()
    shown.locator("td .link").nth(1).click()
    settled(shown)
    assert shown.get_by_role("textbox", name="Target").input_value() == text
    assert shown.inner_text(".target") == text


def test_a_long_text_is_shown_pooled_and_in_windows(page: Visit, model: Model) -> None:
    text = long_text(1024)
    shown = page("attention", "long", text, head="dec.7.self.3")
    own = unshortened_subject_of(model("long"), text)
    head = find_head(own.model, "dec.7.self.3")
    whole = read_maps(own, [head.site], 1024).maps[head]
    assert "largest of 3 × 3" in shown.inner_text(".pooled")
    assert "too long to store all scores" in shown.inner_text(".view footer")
    found = copied_map(shown, (342, 342))
    np.testing.assert_allclose(found, pooled(whole, 3), atol=NEAR)
    assert value(shown, ".largest") == pytest.approx(np.nanmax(whole), abs=NEAR)
    for _ in range(5):
        shown.get_by_role("button", name="Zoom in").click()
        settled(shown)
    shown.get_by_role("button", name="Move up").click()
    settled(shown)
    found = copied_map(shown, (32, 32))
    np.testing.assert_allclose(found, whole[480:512, 496:528], atol=NEAR)
    assert shown.locator(".rows li").count() == 32
    expect_in_url(shown, ".queries=480-512")


def test_a_run_without_cross_attention_shows_a_remedy(page: Visit) -> None:
    shown: Any = page("tokens", "book")
    shown.get_by_role("button", name="Alignment").click()
    shown.wait_for_selector("main p.card")
    assert "has no cross-attention" in shown.inner_text("main p.card")
    assert "--task translate" in shown.inner_text("main p.card")
