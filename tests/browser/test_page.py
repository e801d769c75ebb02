"""The whole page: keyboard, screen readers, phones, light and dark mode, state in the URL, and long texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from tests.browser.conftest import Visit
from tests.browser.reading import Served, audit, expect_in_url, measured, quiet, settled, turn, values, views_of
from tests.browser.tiny_runs import ARABIC, BANGLA, TEXTS, long_text

pytestmark = pytest.mark.thorough

MOST_BYTES = 5_000_000
MOST_REPLY = 2**20
MOST_NODES = 2_000
WRITES = ("alignment", "machines", "write")
"""Views that are tested with an encoder-decoder; all other views are tested with a decoder."""


def test_every_view_is_accessible(page: Visit) -> None:
    """Audit each view in light mode, its contrast in dark mode, and its size on two phones."""
    shown = page("tokens", "book")
    wrong: dict[str, list[str]] = {}
    for view in views_of(shown):
        run = "en-de" if view in WRITES else "book"
        turn(shown, view, run, TEXTS[run], until=quiet)
        shown.emulate_media(color_scheme="light")
        found = audit(shown)
        shown.emulate_media(color_scheme="dark")
        found += [f"dark: {each}" for each in audit(shown, runOnly=["color-contrast"])]
        for width in (390, 360):
            shown.set_viewport_size({"width": width, "height": 800})
            quiet(shown)
            size = measured(shown)
            if size["beyond"] > 0:
                found.append(f"{width} pixels wide: the document is {size['beyond']} wider")
        shown.set_viewport_size({"width": 1280, "height": 900})
        if size["nodes"] > MOST_NODES or size["canvas"] > 2048:
            found.append(f"{size}")
        if found:
            wrong[view] = found
    assert wrong == {}


def test_the_page_can_be_used_with_the_keyboard(page: Visit) -> None:
    shown = page("attention", "book", head="dec.0.self.1", q=4, k=2)
    shown.keyboard.press("Tab")
    assert shown.evaluate("() => document.activeElement.textContent") == "Skip to the view"
    shown.keyboard.press("Enter")
    assert shown.evaluate("() => document.activeElement.id") == "view-title"
    shown.locator("[role=application]").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        shown.keyboard.press(key)
    expect_in_url(shown, ".q=5", ".k=3")
    assert re.search(r"query 5 .* key 3 ", shown.inner_text(".read"))
    shown.keyboard.press("Enter")
    shown.wait_for_selector("h2:text-is('Score anatomy')")
    expect_in_url(shown, ".q=5")


def test_the_menu_can_be_used_with_the_keyboard(page: Visit) -> None:
    shown = page("tokens", "book")
    for _ in range(12):
        shown.keyboard.press("Tab")
        if shown.evaluate("() => document.activeElement.closest('nav') !== null"):
            break
    names = shown.locator("nav button").all_inner_texts()
    assert shown.evaluate("() => document.activeElement.textContent") == names[0]
    for _ in range(names.index("Attention map")):
        shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")
    shown.wait_for_selector("h2:text-is('Attention map')")
    assert shown.get_attribute("nav button:text-is('Attention map')", "aria-current") == "page"


def luminance(page: Page, selector: str, what: str) -> float:
    colour = page.locator(selector).evaluate(f"(element) => getComputedStyle(element).{what}")
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_light_and_dark_follow_the_system_and_the_choice(page: Visit) -> None:
    shown = page("attention", "book", scheme="dark")
    assert luminance(shown, ":root", "backgroundColor") < 60 < 180 < luminance(shown, ":root", "color")
    dark = shown.screenshot(clip=box_of(shown, "canvas"))
    shown.get_by_label("Colours").select_option(label="light")
    assert luminance(shown, ":root", "backgroundColor") > 200
    assert shown.screenshot(clip=box_of(shown, "canvas")) != dark, "the map is drawn again"
    expect_in_url(shown, "theme=light")


def box_of(page: Page, selector: str) -> Any:
    found = page.locator(selector).first.bounding_box()
    assert found is not None
    return found


def test_right_to_left_and_bangla_texts_are_shown(page: Visit) -> None:
    shown = page("tokens", "bangla", ARABIC[0])
    direction = "(element) => getComputedStyle(element).direction"
    assert shown.locator("textarea").first.evaluate(direction) == "rtl"
    assert set(shown.locator(".token").evaluate_all(f"(all) => all.map({direction})")) <= {"rtl", "ltr"}
    assert shown.locator(".token", has_text="القط").evaluate(direction) == "rtl"
    turn(shown, "attention", "bangla", BANGLA[0])
    assert shown.locator("textarea").first.evaluate(direction) == "ltr"
    whole = shown.locator(".rows li").evaluate_all("(all) => all.map((each) => each.textContent)")
    assert "".join(whole).replace("␣", " ").strip() == BANGLA[0], "no cluster is torn apart"


def test_the_url_contains_the_whole_state(page: Visit, server: Served) -> None:
    first = page("attention", "en-de")
    first.get_by_label("Part").select_option(label="Cross-attention")
    first.get_by_label("Layer").select_option("1")
    first.get_by_label("Scale").select_option(label="log")
    first.get_by_label("Level").select_option(label="researcher")
    first.get_by_label("Colours").select_option(label="dark")
    first.locator("textarea").first.fill("the young cat sings .")
    first.wait_for_function("() => location.hash.includes('young')")
    settled(first)
    first.locator("[role=application]").focus()
    first.keyboard.press("ArrowDown")
    first.keyboard.press("ArrowRight")
    settled(first)
    second = page("tokens", "book")
    second.goto("about:blank")
    link = first.evaluate("() => location.href")
    second.goto(link)
    settled(second)
    expect(second).to_have_url(link)
    assert values(second) == values(first)
    assert second.inner_text("section.view") == first.inner_text("section.view")
    assert second.evaluate("() => document.documentElement.dataset.theme") == "dark"


def test_the_back_button_returns(page: Visit) -> None:
    shown = page("tokens", "book")
    for title in ("Attention map", "Row focus"):
        shown.locator("nav").get_by_role("button", name=title).click()
        shown.wait_for_selector(f"h2:text-is('{title}')")
        settled(shown)
    shown.go_back()
    shown.wait_for_selector("h2:text-is('Attention map')")
    shown.go_back()
    shown.wait_for_selector("h2:text-is('Tokens')")
    shown.go_forward()
    shown.wait_for_selector("h2:text-is('Attention map')")


def test_errors_show_a_remedy(page: Visit) -> None:
    shown = page("attention", "book", "the dog " * 60, refused=True)
    lines = shown.locator("[role=alert] p").all_inner_texts()
    assert len(lines) == 2
    assert "the model reads at most 40" in lines[0]
    assert lines[1] == "Give a shorter text."
    shown.locator("textarea").first.fill(TEXTS["book"])
    shown.wait_for_selector("section.view canvas")
    assert shown.locator("[role=alert]").count() == 0


def test_a_missing_token_is_explained(browser: Browser, server: Served) -> None:
    stranger = browser.new_page()
    stranger.goto(server.address)
    lines = stranger.locator("[role=alert] p").all_inner_texts()
    assert len(lines) == 2
    assert "glass serve printed" in lines[1]
    stranger.close()


def test_a_stopped_server_is_reported(browser: Browser, server: Served) -> None:
    reader = browser.new_page()
    reader.goto(server.at("tokens", "book", TEXTS["book"]))
    settled(reader)
    reader.route("**/api/**", lambda route: route.abort())
    reader.locator("textarea").first.fill("It was a day")
    reader.wait_for_selector("[role=alert]")
    assert reader.locator("[role=alert] p").all_inner_texts()[0] == "The server did not answer."
    reader.unroute("**/api/**")
    reader.locator("textarea").first.fill("It was a tall day")
    reader.wait_for_selector("section.view table")
    reader.close()


@pytest.fixture
def sizes(page: Visit) -> Iterator[tuple[Page, dict[str, int]]]:
    """Return a page that shows the run `long`, and a dictionary that collects the size of each response in bytes."""
    shown = page("tokens", "long", "old dog")
    found = dict[str, int]()

    def note(response: Response) -> None:
        found[f"{len(found)} {response.url}"] = int(response.headers.get("content-length", 0))

    shown.on("response", note)
    # Roles are measured in the background, which takes seconds for so many heads, and are not tested here.
    shown.route("**/roles", lambda route: route.fulfill(json={"ready": False}))
    yield shown, found
    shown.unroute_all(behavior="ignoreErrors")


def test_a_long_text_stays_within_size_limits(sizes: tuple[Page, dict[str, int]], server: Served) -> None:
    """Show heads of several layers and four views for a text of 1,024 tokens, in a model with 12 layers of 12 heads."""
    shown, replies = sizes
    text = long_text(1024)
    shown.goto("about:blank")
    shown.goto(server.at("attention", "long", text))
    settled(shown)
    assert sum(replies.values()) < MOST_BYTES
    for head in ("dec.0.self.0", "dec.6.self.5", "dec.11.self.11"):
        turn(shown, "attention", "long", text, head=head)
        assert shown.inner_text("aside h3") == head
    for view in ("tokens", "score", "focus", "heads"):
        turn(shown, view, "long", text)
        size = measured(shown)
        assert size["nodes"] <= MOST_NODES, view
        assert size["canvas"] <= 2048, view
        assert size["beyond"] <= 0, view
    assert shown.locator("section.view canvas").count() == 144
    assert max(replies.values()) <= MOST_REPLY


def test_four_thousand_tokens_do_not_break_the_page(sizes: tuple[Page, dict[str, int]]) -> None:
    shown, replies = sizes
    text = long_text(4096)
    for view in ("attention", "focus"):
        turn(shown, view, "long", text, head="dec.11.self.3")
        assert shown.locator("[role=alert]").count() == 0
        assert measured(shown)["nodes"] <= MOST_NODES
    assert max(replies.values()) <= MOST_REPLY
    turn(shown, "tokens", "book", TEXTS["book"])
    assert values(shown)
