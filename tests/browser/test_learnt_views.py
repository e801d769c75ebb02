"""Views of training: replay, loss, probes and report; the tour; messages where there is nothing to show."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from glassformer.evaluation.probes.probe import ProbeRequest, probe_run
from glassformer.evaluation.probes.surprisal import SurprisalResult
from glassformer.evaluation.probes.texts import surprisal_of_target, surprisal_of_text
from glassformer.evaluation.simple_predictors import counts_of
from glassformer.inspection.replay import read_history
from glassformer.inspection.replay.page import text_for
from glassformer.runs.folder import Run
from glassformer.runs.run_text import find_or_encode_text
from glassformer.tasks import AnyTextModel, MaskFiller, TextModel, Translator
from glassformer.training.journal import read_metrics
from glassformer.verification.report import saved_report
from tests.browser.conftest import Visit
from tests.browser.reading import PATIENCE, Served, copied, settled, turn, value, values
from tests.browser.tiny_runs import TEXTS

pytestmark = pytest.mark.thorough

NEAR = 1e-6
LONG = 240_000
"""Maximum duration of background work, in milliseconds; long enough for a heavily loaded machine."""
STOPS = [
    "tokens",
    "write",
    "attention",
    "score",
    "heads",
    "receipt",
    "lens",
    "ablation",
    "replay",
    "loss",
    "verification",
]


# training replay


def test_the_replay_shows_the_recorded_snapshots(page: Visit, runs: dict[str, Path]) -> None:
    run = Run(runs["book"])
    history = read_history(run)
    lines = read_metrics(run)
    shown = page("replay", "book")
    head, role = history.chosen(None, None)
    rows = list(csv.DictReader(io.StringIO(copied(shown))))
    logged = {int(row["step"]): row for row in rows if row["what"] == "log"}
    for line in lines:
        for key, column in {"loss": "loss", "learning_rate": "learning_rate", "gradient_norm": "gradient_norm"}.items():
            assert float(logged[line["step"]][column]) == pytest.approx(line[key], abs=NEAR)
    scored = [float(row["score"]) for row in rows if row["what"] != "log"]
    assert scored == pytest.approx(history.curve(head, role).tolist(), abs=NEAR)
    assert value(shown, ".scrub output") == pytest.approx(history.losses[-1], abs=NEAR)
    slider = shown.get_by_label("Recorded step")
    map_ = history.snapshots[0].map_of(text_for(history, role), head)
    slider.press("Home")
    assert value(shown, ".scrub output") == pytest.approx(history.losses[0], abs=NEAR)
    assert history.snapshots[0].sample in shown.inner_text("pre")
    shown.locator(".film .stage").press("ArrowDown")
    assert value(shown, ".film .read") == pytest.approx(map_[1, 0] / 255, abs=NEAR)
    shown.get_by_role("button", name="Play", exact=True).click()
    expect(slider).to_have_value(str(len(history.steps) - 1), timeout=PATIENCE)
    shown.get_by_role("button", name="Recompute the last snapshot").click()
    expect(shown.locator(".check .good")).to_be_visible(timeout=LONG)
    assert value(shown, ".check .good") <= 1 / 255


def test_a_run_without_snapshots_names_the_setting(page: Visit, runs: dict[str, Path]) -> None:
    shown = page("replay", "en-de")
    assert "train.snapshots" in shown.inner_text(".missing")
    assert values(shown, ".lines")[0] == pytest.approx(read_metrics(Run(runs["en-de"]))[-1]["loss"], abs=NEAR)


# where the loss is


@pytest.fixture(scope="module")
def surprisal(
    model: Callable[[str], AnyTextModel], runs: dict[str, Path]
) -> Callable[[str, str | None], SurprisalResult]:
    """Return a function that computes the surprisal of a run's text with the library."""

    def found(run: str, target: str | None) -> SurprisalResult:
        own = model(run)
        data = find_or_encode_text(Run(runs[run]), own.config, lambda text: None)
        counts = counts_of(data.train.target.tokens, own.tokenizer.vocab_size)
        if isinstance(own, Translator):
            assert target is not None
            return surprisal_of_target(own, TEXTS[run], target, counts)
        assert isinstance(own, TextModel | MaskFiller)
        return surprisal_of_text(own, TEXTS[run], counts)

    return found


def test_the_loss_of_each_token_equals_the_librarys(
    page: Visit, surprisal: Callable[[str, str | None], SurprisalResult]
) -> None:
    shown = page("loss", "book")
    for run, target in {"book": None, "fill": None, "bangla": None, "en-de": "der alte hund schläft ."}.items():
        turn(shown, "loss", run, TEXTS[run], target or "")
        wanted = surprisal(run, target)
        assert values(shown, ".tokens") == pytest.approx([each.nats for each in wanted.each], abs=NEAR)
        assert values(shown, "dl.figures") == pytest.approx([wanted.mean], abs=NEAR)
        parts = [part.nats for parts in wanted.parts.values() for part in parts]
        assert values(shown, ".groups") == pytest.approx(parts, abs=NEAR)


def test_the_validation_loss_equals_that_of_training(page: Visit, runs: dict[str, Path]) -> None:
    shown = page("loss", "post")
    shown.get_by_role("button", name="Measure the validation split").click()
    expect(shown.locator(".split dl.figures")).to_be_visible(timeout=LONG)
    wanted = min(line["validation_loss"] for line in read_metrics(Run(runs["post"])) if "validation_loss" in line)
    assert value(shown, ".split dl.figures") == pytest.approx(wanted, abs=NEAR)


# probes


def test_probes_equal_those_of_glass_probe(page: Visit, runs: dict[str, Path]) -> None:
    shown = page("probes", "book", questions=80)
    shown.get_by_role("button", name="Run the probes").click()
    expect(shown.get_by_text("Done. The server keeps the results")).to_be_visible(timeout=LONG)
    report = probe_run(ProbeRequest(runs["book"], without=("surprisal",), size=80, device="cpu")).facts()
    for name, result in report["probes"].items():
        shares = values(shown, f"[data-probe={name}]")
        assert shares == pytest.approx([group["share"] for group in result["groups"]], abs=NEAR)
        ends = shown.eval_on_selector_all(
            f"[data-probe={name}] .track", "found => found.flatMap(each => [+each.dataset.low, +each.dataset.high])"
        )
        assert ends == pytest.approx([end for group in result["groups"] for end in group["ci95"]], abs=NEAR)
    assert shown.locator("[data-probe]").count() == len(report["probes"])


# the report


def test_the_verification_report_is_made_and_shown(page: Visit, runs: dict[str, Path]) -> None:
    shown = page("verification", "fill")
    strip = shown.locator("header .verification [role=img]")
    expect(strip).to_have_attribute("aria-label", "Verification report: not verified yet")
    shown.get_by_role("button", name="Verify these weights").click()
    expect(shown.get_by_role("button", name="Verify again")).to_be_visible(timeout=LONG)
    settled(shown)
    report = saved_report(Run(runs["fill"]))
    assert report is not None
    checks = report["checks"]
    wanted = [check["measured"] for ok in (False, True, None) for check in checks if check["ok"] is ok]
    assert values(shown, "td") == [measured for measured in wanted if measured is not None]
    passed = sum(check["ok"] is True for check in checks)
    said = f"{passed} of {len(checks)} checks passed, 0 failed, {len(checks) - passed} did not apply or could not run"
    expect(strip).to_have_attribute("aria-label", f"Verification report: {said}")
    assert strip.locator(".good").count() == passed


# the tour


@pytest.mark.parametrize("width", [1280, 390])
def test_the_tour_can_be_taken_with_the_keyboard(page: Visit, width: int) -> None:
    shown = page("tokens", "book", width=width)
    start = shown.locator("#tour-start")
    title = shown.locator("#tour-title")
    start.press("Enter")
    expect(title).to_be_focused()
    for number, view in enumerate(STOPS, 1):
        expect(shown.locator(".tour .top")).to_contain_text(f"{number} of {len(STOPS)}")
        expect(title).to_be_focused()
        assert shown.evaluate("() => location.hash").startswith(f"#{view}?")
        shown.wait_for_selector("section.view", timeout=PATIENCE)
        box = shown.locator(".tour").bounding_box()
        assert box is not None
        assert (box["x"] >= 0, box["x"] + box["width"] <= width, box["y"] + box["height"] <= 900) == (True,) * 3
        shown.keyboard.press("ArrowRight")
    shown.keyboard.press("Home")
    expect(shown.locator(".tour .top")).to_contain_text("1 of")
    shown.keyboard.press("Escape")
    expect(shown.locator(".tour")).to_have_count(0)
    expect(start).to_be_focused()


def test_the_tour_skips_views_that_a_run_lacks(page: Visit) -> None:
    shown = page("tokens", "mails", tour="tokens")
    found = [shown.evaluate("() => location.hash.slice(1).split('?')[0]")]
    while shown.get_by_role("button", name="Next", exact=True).count():
        shown.get_by_role("button", name="Next", exact=True).click()
        found.append(shown.evaluate("() => location.hash.slice(1).split('?')[0]"))
    assert "loss" not in found
    assert [stop for stop in STOPS if stop in found] == found
    assert {"tokens", "attention", "verification"} <= set(found)


# messages of views that have nothing to show


@pytest.fixture
def alone(browser: Browser, server: Served) -> Iterator[Callable[[Callable[[Route], None]], Page]]:
    """Return a function that opens a page on which a given function answers the requests for the list of runs."""
    context = browser.new_context(viewport={"width": 900, "height": 800})

    def visit(answer: Callable[[Route], None]) -> Page:
        found = context.new_page()
        found.route("**/api/runs", answer)
        found.goto(server.at("tokens", "book", TEXTS["book"]))
        return found

    yield visit
    context.close()


def listed(route: Route, **changes: Any) -> None:
    """Answer with the server's list of runs, with changes to its first run."""
    runs = route.fetch().json()["runs"]
    route.fulfill(json={"runs": [{**runs[0], **changes}, *runs[1:]]})


def test_missing_runs_are_reported(alone: Callable[[Callable[[Route], None]], Page]) -> None:
    shown = alone(lambda route: route.fulfill(json={"runs": []}))
    expect(shown.get_by_role("alert")).to_contain_text("glass serve RUN")


def test_the_page_waits_for_a_first_checkpoint(alone: Callable[[Callable[[Route], None]], Page]) -> None:
    state: dict[str, Any] = {"step": None, "version": None, "training": True}
    shown = alone(lambda route: listed(route, **state))
    expect(shown.locator("main h2")).to_have_text("book has no checkpoint yet")
    state.clear()
    expect(shown.locator("section.view")).to_be_visible(timeout=PATIENCE)


def test_the_reason_is_shown_for_an_unreadable_run(alone: Callable[[Callable[[Route], None]], Page]) -> None:
    error = {"what": "tokenizer.json is damaged", "remedy": "Copy it again."}
    shown = alone(lambda route: listed(route, error=error))
    expect(shown.get_by_role("alert")).to_contain_text("tokenizer.json is damaged")
    assert json.dumps(error["remedy"]).strip('"') in shown.inner_text("[role=alert]")


def test_a_stopped_server_is_reported_until_it_returns(alone: Callable[[Callable[[Route], None]], Page]) -> None:
    gone = False

    def answer(route: Route) -> None:
        route.abort() if gone else route.continue_()

    shown = alone(answer)
    settled(shown)
    gone = True
    expect(shown.locator(".gone")).to_be_visible(timeout=PATIENCE)
    assert shown.locator("section.view table").count() == 1  # the view is still shown
    gone = False
    expect(shown.locator(".gone")).to_have_count(0, timeout=PATIENCE)
    settled(shown)
