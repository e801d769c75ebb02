"""Views of one text show the numbers that the library computes, to 1e-6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from glassformer.app.server.views.importance import replacements
from glassformer.inspection.attribution import agreement, case_of, lens, occlude, split_output
from glassformer.inspection.attribution.importance import importance
from glassformer.inspection.embeddings import components, neighbours
from glassformer.inspection.explain import make_tape, unshortened_subject_of
from glassformer.inspection.position_curves import shuffle_test
from glassformer.tasks import AnyTextModel
from tests.browser.conftest import Visit
from tests.browser.reading import copied, settled, value, values
from tests.browser.tiny_runs import TEXTS

pytestmark = pytest.mark.thorough

Models = Callable[[str], AnyTextModel]


def near(shown: Any, right: Any) -> bool:
    """Return whether numbers agree within an absolute and relative tolerance of 1e-6."""
    return np.allclose(np.asarray(shown, float), np.asarray(right, float), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("run", ["book", "fill", "en-de"])
def test_a_cell_of_the_tape_is_explained(run: str, page: Visit, model: Models) -> None:
    tape = make_tape(unshortened_subject_of(model(run), TEXTS[run]))
    number = next(n for n in reversed(range(len(tape.matrices))) if tape.matrices[n].name == "Q")
    matrix = tape.matrices[number]
    part = next(step.part for step in reversed(tape.steps) if step.first <= number and step.section.matrices)
    head = next(step.section.head for step in reversed(tape.steps) if step.first <= number)
    shown = page("tape", run, part=part, matrix=number, only=head, r=1, c=2)
    working = tape.derive_cell(number, 1, 2)
    assert working is not None
    assert near(value(shown, ".working h4"), matrix.values[1, 2])
    assert near(values(shown, ".working dl"), [value for _, value in working.lines])
    assert near(value(shown, ".difference"), tape.difference(number))
    assert near(values(shown, ".seen > p:first-of-type span"), list(matrix.statistics().values()))
    shown.locator(".matrix [role=application]").focus()
    shown.keyboard.press("ArrowDown")
    expect(shown.locator(".working h4")).to_contain_text("[2, 2]")
    assert near(value(shown, ".working h4"), matrix.values[2, 2])
    assert near([float(line.split(",")[2]) for line in copied(shown).splitlines()[1:]], matrix.values.ravel())


@pytest.mark.parametrize("run", ["book", "mails", "en-de"])
def test_the_receipt_adds_up(run: str, page: Visit, model: Models) -> None:
    case = case_of(unshortened_subject_of(model(run), TEXTS[run]))
    parts = split_output(case.model, case.trace(), case.outputs[-1])
    logit = float(case.logits()[0, -1, case.outputs[-1].answer])
    shown = page("receipt", run, all=1)
    assert near(values(shown, ".waterfall li:not(.total)"), [part.value for part in parts])
    assert near([value(shown, ".logit"), value(shown, ".waterfall .total")], [logit, sum(part.value for part in parts)])
    assert abs(value(shown, ".residual")) < 1e-4
    number = next(n for n, part in enumerate(parts) if part.head is not None)
    shown.locator(".waterfall").get_by_role("button", name=parts[number].name, exact=True).click()
    split = shown.locator(".card", has_text="split by").locator(".token")
    expect(split).to_have_count(len(parts[number].sources or ()))
    found = [float(each.get_attribute("data-value") or "nan") for each in split.all()]
    assert near(found, parts[number].sources)


def test_there_is_no_receipt_without_an_exact_split(page: Visit) -> None:
    shown = page("receipt", "post", refused=True)
    expect(shown.get_by_role("alert")).to_contain_text("norm_order = post")
    assert shown.locator(".waterfall").count() == 0


@pytest.mark.parametrize("run", ["book", "fill", "en-de"])
def test_the_last_row_of_the_lens_equals_the_model(run: str, page: Visit, model: Models) -> None:
    case = case_of(unshortened_subject_of(model(run), TEXTS[run]), everywhere=True)
    right = lens(case.model, case.tokens, case.outputs, case.target)
    shown = page("lens", run)
    columns = shown.locator("tfoot td").count()
    grid = np.reshape(values(shown, "[role=grid]"), (-1, columns))
    assert near(grid, right.probabilities[:, :columns, 0])
    if right.curve is not None:
        assert near([value(shown, ".last"), value(shown, ".loss")], [right.curve[-1]] * 2)
    shown.locator("#lens-1-0").click()
    assert near([value(shown, ".rank"), value(shown, ".cost")], [right.ranks[1, 0], right.losses[1, 0]])
    shown.keyboard.press("ArrowRight")
    expect(shown.locator("#lens-1-1")).to_be_focused()
    assert near([value(shown, ".rank"), value(shown, ".cost")], [right.ranks[1, 1], right.losses[1, 1]])


@pytest.mark.parametrize("run", ["book", "en-de"])
def test_three_measures_of_importance_equal_the_librarys(run: str, page: Visit, model: Models) -> None:
    case = case_of(unshortened_subject_of(model(run), TEXTS[run]))
    made = case.trace()
    occlusion = occlude(case, *replacements(model(run)))
    right = importance(case.model, made, occlusion, 0, 2)[0]
    column = 2
    shown = page("importance", run, place=case.outputs[column].place, upto=0)
    assert near(values(shown, ".own .attention"), right.attention)
    assert near(values(shown, ".own .rollout"), right.rollout)
    assert near(values(shown, ".own .blank"), right.blanked)
    rows = [row for row in agreement(case.model, made, occlusion).rows if row.measure == "attention"]
    assert shown.locator("tbody tr").count() == len(rows)
    assert near(value(shown, "tbody tr:first-child td:nth-last-child(3)"), rows[0].correlation)


def test_the_embedding_map(page: Visit, model: Models) -> None:
    vectors = model("book").model.embedding.tokens.weight
    shown = page("embeddings", "book", near=5)
    expect(shown.locator(".neighbours li")).to_have_count(20)
    assert near(values(shown, ".neighbours"), [cosine for _, cosine in neighbours(vectors, 5, 20)])
    found = components(vectors)
    assert near(values(shown, ".shares"), found.explained_variance_ratio[:10])
    points = [
        [float(number) for number in line.rsplit(",", 2)[1:]]
        for line in copied(shown).splitlines()[1 : 1 + len(vectors)]
    ]
    assert near(points, found.transform(vectors)[:, :2])
    shown.locator(".scatter [role=application]").focus()
    shown.keyboard.press("ArrowRight")
    expect(shown.locator("h3", has_text="id 6")).to_be_visible()
    settled(shown)
    assert near(values(shown, ".neighbours"), [cosine for _, cosine in neighbours(vectors, 6, 20)])


@pytest.mark.parametrize("run", ["book", "mails", "en-de"])
def test_the_shuffle_test(run: str, page: Visit, model: Models) -> None:
    text_model = model(run)
    case = case_of(unshortened_subject_of(text_model, TEXTS[run]))
    special = getattr(text_model, "source_tokenizer", text_model.tokenizer).special
    right = shuffle_test(case, 0 if run == "en-de" else len(case.outputs) - 1, tuple(sorted(special)))
    shown = page("positions", run)
    shown.get_by_role("button", name="Shuffle").click()
    expect(shown.locator(".figures")).to_be_visible()
    numbers = [value(shown, f".figures .{name}") for name in ("before", "drop", "divergence", "same")]
    drop = right.before - float(right.after.mean())
    assert near(numbers, [right.before, drop, float(right.divergence.mean()), float(right.same.double().mean())])


@pytest.mark.parametrize("view", ["tape", "receipt", "lens", "importance", "embeddings", "positions"])
def test_no_view_is_wider_than_a_phone(view: str, page: Visit) -> None:
    shown = page(view, "bangla", width=360, scheme="dark")
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    assert shown.evaluate("Math.max(...[...document.querySelectorAll('canvas')].map((each) => each.width), 0)") <= 2048
    assert shown.locator("svg *").count() <= 2000
