"""The views Write, Sampling, Ablation, Two runs and Three model families show the library's results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from glassformer.base.config import SampleConfig
from glassformer.evaluation.copying import copy_meter, cover
from glassformer.evaluation.run_comparison import shared_spans
from glassformer.evaluation.token_losses import next_logits, predict, predict_token, surprisals
from glassformer.evaluation.training_text import held_out_text, training_text
from glassformer.inspection.ablation import ablate, ablation_loss, check_ablation
from glassformer.inspection.explain import unshortened_subject_of
from glassformer.inspection.receipt.draw import explain_draw
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel, TextModel, Translator, symbol_notes
from tests.browser.conftest import Visit
from tests.browser.reading import copied, expect_in_url, settled, value, values
from tests.browser.tiny_runs import TEXTS
from tests.journey.commands import here

pytestmark = pytest.mark.thorough

Library = Callable[[str], AnyTextModel]
CLOSE = 1e-6


def near(shown: list[float], real: list[float]) -> None:
    """Assert that two lists of numbers agree to 1e-6 and are not empty."""
    assert len(shown) == len(real) > 0
    assert shown == pytest.approx(real, abs=CLOSE)


@pytest.mark.parametrize("view", ["write", "tokens", "attention"])
def test_a_text_in_another_unicode_form_has_notes(view: str, page: Visit, model: Library) -> None:
    known = TEXTS["bangla"]
    (written,) = {known.replace("\u09df", "\u09af\u09bc"), known.replace("\u09af\u09bc", "\u09df")} - {known}
    notes = symbol_notes(model("bangla").tokenizer, [written])
    assert "another Unicode form" in notes[0]
    shown = page(view, "bangla", written)
    expect(shown.locator(".note")).to_have_text(notes)
    shown.locator("textarea").first.fill(known)
    expect(shown.locator(".note")).to_have_count(0)


@pytest.mark.parametrize("run", ["book", "en-de"])
def test_generated_tokens_are_shaded(run: str, page: Visit, model: Library, runs: dict[str, Path]) -> None:
    shown = page("write", run, tokens=30, seed=3, t=0.9, m=0.1)
    writer = model(run)
    assert isinstance(writer, TextModel | Translator)
    shown.locator(".box .button.main").click()
    expect(shown.locator(".told")).to_contain_text("of the training text were searched")
    settings = writer.config.sample.replace(tokens=30, seed=3, temperature=0.9, min_p=0.1, beams=1, length_penalty=0.6)
    (sample,) = writer.generate([TEXTS[run]], settings)
    assert shown.locator(".out .text").inner_text() == (TEXTS[run] if run == "book" else "") + sample.text
    opened = OpenedRun.load(runs[run])
    meter = copy_meter(sample.text, training_text(opened), held_out_text(opened))
    found = meter.matches
    covered = cover(len(sample.text), found)
    assert value(shown, ".share") == pytest.approx(meter.copied, abs=CLOSE)
    expect(shown.locator(".told")).to_contain_text("of the held-out text")
    assert max(values(shown, ".match"), default=0) == max(covered, default=0)
    if found:
        shown.locator(".match").first.click()
        longest = max((m for m in found if m.start <= found[0].start < m.start + m.length), key=lambda m: m.length)
        expect(shown.locator("blockquote mark")).to_have_text(sample.text[longest.start :][: longest.length])


def test_the_url_reproduces_the_generated_text(page: Visit) -> None:
    texts = []
    for _ in range(2):
        shown = page("write", "book", tokens=20, seed=5, wrote=1)
        expect(shown.locator(".told")).to_contain_text("of the training text were searched")
        texts.append(shown.locator(".out .text").inner_text())
    assert texts[0] == texts[1]


def test_probabilities_of_labels_and_masks_are_shown(page: Visit, model: Library) -> None:
    shown = page("write", "mails")
    (named,) = model("mails").classify([TEXTS["mails"]])  # type: ignore[union-attr]
    near(values(shown, ".labels"), list(named.probabilities.values()))
    holes = model("fill").fill(TEXTS["fill"], 8)  # type: ignore[union-attr]
    near(values(page("write", "fill"), ".hole"), [each.probability for hole in holes for each in hole])


@pytest.mark.parametrize("run", ["book", "en-de"])
def test_the_stages_of_sampling_and_the_beam_tree_are_shown(run: str, page: Visit, model: Library) -> None:
    shown = page("sampling", run, t=0.7, k=12, p=0.8, m=0.3, r=1.3, seed=2)
    writer = model(run)
    assert isinstance(writer, TextModel | Translator)
    after = next_logits(writer, TEXTS[run])
    settings = SampleConfig(temperature=0.7, top_k=12, top_p=0.8, min_p=0.3, repetition_penalty=1.3, seed=2)
    found = explain_draw(after.logits, settings, after.previous, after.step)
    near(values(shown, ".sum"), [1.0] * 6)
    near(values(shown, ".left"), [stage.left for stage in found.stages])
    near(values(shown, ".largest"), [float(stage.probabilities.max()) for stage in found.stages])
    best = found.stages[0].probabilities.sort(descending=True, stable=True).indices[:5].tolist()
    near(values(shown, ".shares")[:10:2], [float(found.stages[0].probabilities[id]) for id in best])
    near(values(shown, ".shares")[1:10:2], [float(found.stages[-1].probabilities[id]) for id in best])
    near(values(shown, ".race"), [runner.arrival for runner in found.runners[:8]])
    texts = writer.n_best([TEXTS[run]], writer.config.sample.replace(beams=3, tokens=6, length_penalty=0.6))[0]
    near(values(shown, ".found"), [each.score for each in texts if each.score is not None])
    assert value(shown, ".told") == pytest.approx(texts[0].score, abs=CLOSE)
    assert shown.locator("svg *").count() <= 2000


@pytest.mark.parametrize("view", ["write", "sampling"])
def test_min_p_is_off_until_its_slider_is_moved(view: str, page: Visit) -> None:
    shown = page(view, "book")
    label = shown.locator("label", has_text="Min-p")
    expect(label.locator("output")).to_have_text("all")
    for _ in range(7):
        label.get_by_role("slider").press("ArrowRight")
    expect(label.locator("output")).to_have_text("0.07")
    expect_in_url(shown, ".m=0.07")
    if view == "sampling":
        expect(shown.locator(".stages tbody tr").last).to_contain_text("min-p 0.07")


@pytest.mark.parametrize(
    ("run", "part"), [("book", "dec.0.self.1"), ("fill", "enc.0.self.0"), ("en-de", "dec.0.cross.1")]
)
def test_an_ablated_part_changes_the_output(
    run: str, part: str, page: Visit, model: Library, runs: dict[str, Path]
) -> None:
    shown = page("ablation", run)
    opened = model(run)
    shown.locator(f'button.switch[title$="({part})"]').click()
    settled(shown)
    target = unshortened_subject_of(opened, TEXTS[run]).target
    data = OpenedRun.load(runs[run]).held_out(2000)
    off = ablate(opened.model, check_ablation(opened.model, [part]), data)
    loss = ablation_loss(off, data)
    costs = [surprisals(opened, TEXTS[run], target, forward).mean for forward in (None, off)]
    assert all(cost is not None for cost in costs)
    near(values(shown, ".loss .whole"), [costs[0] or 0, loss.full.loss])
    near(values(shown, ".loss .off"), [costs[1] or 0, loss.ablated.loss])
    subject = unshortened_subject_of(opened, TEXTS[run])
    before, after = (predict(opened, subject, forward, first=True) for forward in (None, off))
    bars = values(shown, ".bars")
    assert max(bars[::2]) == pytest.approx(float(before.probabilities.max()), abs=CLOSE)
    assert max(bars[1::2]) == pytest.approx(float(after.probabilities.max()), abs=CLOSE)
    said = here("evaluate", runs[run], "--ablate", part, "--tokens", "2000", "--json", folder=runs[run].parents[1])
    assert values(shown, ".loss .off")[1] == pytest.approx(json.loads(said.stdout)["loss"], abs=CLOSE)


def test_a_failed_measurement_of_an_ablation_is_reported(page: Visit) -> None:
    """The loss on held-out text comes from a second, slower request; if the server refuses it, show the error."""
    shown = page("ablation", "book", refused=True)
    error = {"error": {"what": "the server is busy", "remedy": "Try again with `glass serve`."}}
    shown.route(
        "**/ablation",
        lambda route: (
            route.fulfill(json=error, status=429) if "tokens" in route.request.post_data_json else route.continue_()
        ),
    )
    shown.locator("button.switch").first.click()
    expect(shown.locator(".losses .problem .what")).to_have_text("the server is busy")
    expect(shown.locator(".losses .problem code")).to_have_text("glass serve")


def test_two_runs_are_shown_side_by_side(page: Visit, model: Library) -> None:
    shown = page("compare", "book", other="post", stretch=3, head="dec.1.self.0", head2="dec.0.self.1")
    costs = [surprisals(model(name), TEXTS["book"]) for name in ("book", "post")]
    near(values(shown, ".mean"), [each.mean or 0 for each in costs])
    parts = shared_spans(*costs)
    near(values(shown, ".read"), [parts[3].one or 0, parts[3].other or 0])
    rows = [line.rsplit(",", 2)[1:] for line in copied(shown).strip().splitlines()[1:]]
    near([float(row[1]) for row in rows if row[1]], [part.other for part in parts if part.other is not None])
    predictions = [
        predict(model(name), unshortened_subject_of(model(name), TEXTS["book"])) for name in ("book", "post")
    ]
    bars = values(shown, "ol[aria-label^='Probability that each run']")
    near([max(bars[::2]), max(bars[1::2])], [float(each.probabilities.max()) for each in predictions])


@pytest.mark.parametrize(("run", "other", "is_its"), [("sequel", "book", "parent"), ("book", "sequel", "child")])
def test_a_run_is_compared_with_its_parent_or_child_first(run: str, other: str, is_its: str, page: Visit) -> None:
    shown = page("compare", run)
    pick = shown.get_by_label("Other run")
    chosen = pick.locator("option:checked")
    expect(chosen).to_have_text(f"{other} (its {is_its})")
    expect(shown.locator(".relation")).to_have_text("Training of sequel began with the weights of book.")
    expect(shown.locator(".sums tbody b")).to_have_text([run, other])
    pick.select_option("post")
    expect(chosen).to_have_text("post")
    expect(shown.locator(".relation")).to_have_count(0)
    expect(shown.locator(".sums tbody b")).to_have_text([run, "post"])


def test_a_run_without_a_parent_is_compared_with_a_run_of_its_task(page: Visit) -> None:
    shown = page("compare", "post")
    pick = shown.get_by_label("Other run")
    expect(pick.locator("option:checked")).to_have_text("book")
    assert [name for name in pick.locator("option").all_inner_texts() if "(its " in name] == []
    expect(shown.locator(".relation")).to_have_count(0)


def test_three_families_are_shown_with_one_text(page: Visit, model: Library) -> None:
    text = "It was a small day when the child met the cat."
    at = text.index("child")
    shown = page("machines", "book", text, at=at, decoder="book", encoder="fill", **{"encoder-decoder": "en-de"})
    for family, run in (("decoder", "book"), ("encoder", "fill")):
        costs = surprisals(model(run), text)
        place = next(place for place, end in enumerate(costs.ends) if end > at)
        found = predict_token(model(run), text, place)
        assert value(shown, f".{family} .nats") == pytest.approx(costs.nats[place], abs=CLOSE)
        near(values(shown, f".{family} .shares"), [float(found.probabilities[id]) for id in found.best(5)])
    writer = model("en-de")
    assert isinstance(writer, Translator)
    settings = writer.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=24)
    expect(shown.locator(".encoder-decoder .writes")).to_have_text(writer.generate([text], settings)[0].text.strip())
    left, both = (surprisals(model(run), text).nats for run in ("book", "fill"))
    pairs = [(one, two) for one, two in zip(left[-len(both) :], both[-len(left) :], strict=False) if one and two]
    assert value(shown, ".left") == pytest.approx(sum(one for one, _ in pairs), abs=1e-5)
    assert value(shown, ".both") == pytest.approx(sum(two for _, two in pairs), abs=1e-5)
