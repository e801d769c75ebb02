"""Open views of the page, read what they show, and collect everything that goes wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, Request, expect

HERE = ("data", "blob")
GRAVE = ("serious", "critical")
PATIENCE = 30_000
"""Maximum time to wait for a response, in milliseconds; long enough for a heavily loaded machine."""


@dataclass(frozen=True)
class Served:
    """A running server.

    Attributes:
        address: URL without a trailing slash.
        token: access token.
        runs: folders of the served runs, by name.
    """

    address: str
    token: str
    runs: dict[str, Path]

    def at(self, view: str, run: str, text: str = "", target: str = "", **state: Any) -> str:
        """Return the URL of a view, with the token; see `place_of`."""
        return f"{self.address}/?token={self.token}{place_of(view, run, text, target, **state)}"


def place_of(view: str, run: str, text: str = "", target: str = "", **state: Any) -> str:
    """Return the fragment (`#...`) of a view's URL.

    `level` and `theme` are settings of the page; other keywords, such as `layer=1`, are settings of the view.
    """
    shared = {name: state.pop(name) for name in ("level", "theme") if name in state}
    given = {"run": run, "text": text, "target": target, **shared, **{f".{name}": state[name] for name in state}}
    query = "&".join(f"{quote_plus(name)}={quote_plus(str(value))}" for name, value in given.items() if value != "")
    return f"#{view}?{query}"


class Faults:
    """Everything that goes wrong on a page: errors and warnings, failed requests, requests to other hosts.

    Args:
        page: the page to watch.
        address: URL of the server.
        refused: whether the server may refuse requests.
    """

    def __init__(self, page: Page, address: str, refused: bool = False) -> None:
        self.found: list[str] = []
        self._host = urlsplit(address).netloc
        self._refused = refused
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("request", self._asked)
        page.on("requestfailed", self._failed)

    def _said(self, message: ConsoleMessage) -> None:
        expected = self._refused and "the server responded with a status of 4" in message.text
        if message.type in ("error", "warning") and not expected:
            self.found.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in HERE and address.netloc != self._host:
            self.found.append(f"asked another host: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a request that the page canceled because of the next request
            self.found.append(f"failed: {request.method} {request.url}: {request.failure}")


def settled(page: Page) -> None:
    """Wait until the view shows its answer or an error."""
    page.wait_for_selector("section.view", timeout=PATIENCE)
    page.wait_for_function(
        """() => {
          const view = document.querySelector("section.view");
          return view?.getAttribute("aria-busy") === "false" && view.querySelector("footer .copy, .problem") !== null;
        }""",
        timeout=PATIENCE,
    )


def expect_in_url(page: Page, *parts: str) -> None:
    """Wait until the URL contains each of the parts.

    The browser reports a changed URL to the test some time after it has handled the key or the click.
    """
    for part in parts:
        expect(page).to_have_url(re.compile(re.escape(part)), timeout=PATIENCE)


def quiet(page: Page) -> None:
    """Wait until the page shows an idle view, or a card instead of a view.

    Use this function for views that begin with a button: they show no answer yet, so `settled` would wait in vain.
    """
    page.wait_for_function(
        """() => document.querySelector("main p.card") !== null
             || document.querySelector("section.view")?.getAttribute("aria-busy") === "false" """,
        timeout=PATIENCE,
    )


GO_TO = """(place) => new Promise((done) => {
    const drawn = () => requestAnimationFrame(() => requestAnimationFrame(() => done(null)));
    const before = location.href;
    addEventListener("hashchange", drawn, { once: true });
    location.hash = place;
    if (location.href === before) {
        removeEventListener("hashchange", drawn);
        drawn();
    }
})"""
"""JavaScript that changes the URL's fragment, and waits until the page has read the change and drawn the result."""


def turn(
    page: Page,
    view: str,
    run: str,
    text: str = "",
    target: str = "",
    *,
    until: Callable[[Page], None] = settled,
    **state: Any,
) -> None:
    """Go to another view, run or text without reloading the page, which is much faster than opening a new page."""
    page.evaluate(GO_TO, place_of(view, run, text, target, **state))
    until(page)


def values(page: Page, selector: str = "section.view") -> list[float]:
    """Return the `data-value` numbers of elements that match a selector or are inside such elements, in page order."""
    texts = page.evaluate(
        """(selector) => [...document.querySelectorAll("[data-value]")]
             .filter((element) => element.closest(selector)).map((element) => element.getAttribute("data-value"))""",
        selector,
    )
    return [float(text) for text in texts]


def value(page: Page, selector: str) -> float:
    """Return the only `data-value` number of elements that match a selector or are inside such elements."""
    (found,) = values(page, selector)
    return found


def copied(page: Page, button: str = "Copy numbers") -> str:
    """Click a button that copies to the clipboard, and return the copied text."""
    page.get_by_role("button", name=button, exact=True).click()
    page.wait_for_function("() => document.querySelector('.copy [role=status]')?.textContent.includes('copied')")
    found: str = page.evaluate("() => navigator.clipboard.readText()")
    return found


def views_of(page: Page) -> list[str]:
    """Return the names of all views in the menu."""
    found: list[str] = page.locator("label.narrow option").evaluate_all("(all) => all.map((each) => each.value)")
    assert len(found) > 5
    return found


def audit(page: Page, **options: Any) -> list[str]:
    """Return the serious and critical violations that axe-core finds."""
    found = Axe().run(page, options={"resultTypes": ["violations"], **options})
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found.response["violations"]
        if each["impact"] in GRAVE
    ]


def measured(page: Page) -> dict[str, Any]:
    """Return sizes of the page: pixels beyond the window's width, number of SVG nodes, and the largest canvas side."""
    found: dict[str, Any] = page.evaluate(
        """() => ({
             beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
             nodes: document.querySelectorAll("svg, svg *").length,
             canvas: Math.max(
               0, ...[...document.querySelectorAll("canvas")].flatMap(({width, height}) => [width, height]),
             ),
           })"""
    )
    return found
