"""Reading the page as people do, and being told at once what went wrong on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, Request

HERE = ("data", "blob")
GRAVE = ("serious", "critical")
PATIENCE = 30_000
"""Maximum time to wait for a response, in milliseconds; long enough for a heavily loaded machine."""


@dataclass(frozen=True)
class Served:
    """A server that runs.

    Attributes:
        address: without a slash at its end.
        token: that lets in.
        runs: name -> folder.
    """

    address: str
    token: str
    runs: dict[str, Path]

    def at(self, view: str, run: str, text: str = "", target: str = "", **state: Any) -> str:
        """The address of a view, with the token; see `place_of`."""
        return f"{self.address}/?token={self.token}{place_of(view, run, text, target, **state)}"


def place_of(view: str, run: str, text: str = "", target: str = "", **state: Any) -> str:
    """What stands behind the # of an address: `layer=1` and the like is the view's, `level` and `theme` the page's."""
    shared = {name: state.pop(name) for name in ("level", "theme") if name in state}
    given = {"run": run, "text": text, "target": target, **shared, **{f".{name}": state[name] for name in state}}
    query = "&".join(f"{quote_plus(name)}={quote_plus(str(value))}" for name, value in given.items() if value != "")
    return f"#{view}?{query}"


class Faults:
    """All that goes wrong on a page: errors in its console, requests that fail, and those to anywhere else.

    Args:
        page: that is watched.
        address: of the server.
        refused: whether the server may refuse a question.
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
        if request.failure != "net::ERR_ABORTED":  # a question that was taken back, as the next one was asked
            self.found.append(f"failed: {request.method} {request.url}: {request.failure}")


def settled(page: Page) -> None:
    """Wait until the view has its answer, or says what is wrong."""
    page.wait_for_selector("section.view", timeout=PATIENCE)
    page.wait_for_function(
        """() => {
          const view = document.querySelector("section.view");
          return view?.getAttribute("aria-busy") === "false" && view.querySelector("footer .copy, .problem") !== null;
        }""",
        timeout=PATIENCE,
    )


def quiet(page: Page) -> None:
    """Wait until a view is there and asks nothing: enough for those that begin with a button."""
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
"""Change the address, and wait until the page has read it, in an event of its own, and drawn what follows from it."""


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
    """Go to another view, run or text without loading the page again: much cheaper than a new page."""
    page.evaluate(GO_TO, place_of(view, run, text, target, **state))
    until(page)


def values(page: Page, selector: str = "section.view") -> list[float]:
    """The numbers of `[data-value]` in the elements of a selector, or of these themselves, in the order of the page."""
    texts = page.evaluate(
        """(selector) => [...document.querySelectorAll("[data-value]")]
             .filter((element) => element.closest(selector)).map((element) => element.getAttribute("data-value"))""",
        selector,
    )
    return [float(text) for text in texts]


def value(page: Page, selector: str) -> float:
    """The only number there."""
    (found,) = values(page, selector)
    return found


def copied(page: Page, button: str = "Copy numbers") -> str:
    """What a button puts on the clipboard."""
    page.get_by_role("button", name=button, exact=True).click()
    page.wait_for_function("() => document.querySelector('.copy [role=status]')?.textContent.includes('copied')")
    found: str = page.evaluate("() => navigator.clipboard.readText()")
    return found


def views_of(page: Page) -> list[str]:
    """The names of all views, as the menu has them."""
    found: list[str] = page.locator("label.narrow option").evaluate_all("(all) => all.map((each) => each.value)")
    assert len(found) > 5
    return found


def audit(page: Page, **options: Any) -> list[str]:
    """What axe-core finds that is serious or critical."""
    found = Axe().run(page, options={"resultTypes": ["violations"], **options})
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found.response["violations"]
        if each["impact"] in GRAVE
    ]


def measured(page: Page) -> dict[str, Any]:
    """How far the document can be moved to the side, SVG nodes, and the largest canvas side."""
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
