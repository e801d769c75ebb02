"""Fixtures of the browser tests: tiny runs of all model families, one server, one browser, and its pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from glassformer.app.server.access import Access
from glassformer.app.server.app import make_app
from glassformer.app.server.bundle import PAGE
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.server import Server, listen
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel
from tests.browser.reading import PATIENCE, Faults, Served, settled
from tests.browser.tiny_runs import LEARNT, LONG, TEXTS, make_all
from tests.journey.task_runs import TINY
from tests.trained import trained

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDE = {"width": 1280, "height": 900}
Visit = Callable[..., Page]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of the tiny runs by name; `tiny_runs.TEXTS` has an input text for each, except for `long`."""
    home = trained(tmp_path_factory.mktemp("served"), "browser", [TINY, LEARNT, LONG], make_all)
    return {name: home / "runs" / name for name in [*TEXTS, "long"]}


@pytest.fixture(scope="session")
def model(runs: dict[str, Path]) -> Callable[[str], AnyTextModel]:
    """Return a function that opens a run's model with the library, without the server."""
    return cache(lambda name: OpenedRun.load(runs[name]).text_model)


@pytest.fixture(scope="session")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built page.

    It is GLASS_PAGE if that environment variable is set (for work on the page), else the committed page; if that is
    missing, a new build of `web/`.
    """
    if given := os.environ.get("GLASS_PAGE"):
        return Path(given)
    if (PAGE / "index.html").is_file():
        return PAGE
    folder = tmp_path_factory.mktemp("page")
    built = subprocess.run(
        ["npx", "vite", "build", "--outDir", folder, "--emptyOutDir"],
        cwd=ROOT / "web",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def server(runs: dict[str, Path], page_folder: Path) -> Iterator[Served]:
    """Run the real server in a thread."""
    listening = listen("127.0.0.1", 0)
    token = "a-token-for-tests"
    port = listening.getsockname()[1]
    ready = threading.Event()
    app = make_app(ModelRegistry(list(runs.values()), "cpu"), Access(token, port), page_folder)
    found = Server(app, ready.set)
    thread = threading.Thread(target=found.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    assert ready.wait(30)
    yield Served(f"http://127.0.0.1:{port}", token, runs)
    found.should_exit = True
    thread.join(30)
    listening.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Launch the system's Chromium, or skip the test if there is none.

    It is closed after the tests of this package, because Playwright's event loop would disturb other tests.
    """
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine: apt install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


@pytest.fixture(scope="package")
def _reader(browser: Browser, server: Served) -> Iterator[BrowserContext]:
    """Return the browser context of all pages, which share its cookies and cache."""
    context = browser.new_context(viewport=WIDE, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.address)
    yield context
    context.close()


@pytest.fixture
def page(_reader: BrowserContext, server: Served) -> Iterator[Visit]:
    """Return a function that opens a view on a new page and waits for its answer.

    Example: `page("attention", run="book", head=1)`. Further keywords are those of `Served.at`. If no text is given,
    use the run's text in `TEXTS`. `width` is the window's width in pixels, and `scheme` its color scheme ("light"
    or "dark"). When the test ends, the fixture fails it if anything went wrong on one of its pages; with
    `refused=True`, the server may refuse requests.
    """
    watched: list[tuple[Page, Faults]] = []

    def visit(
        view: str,
        run: str = "book",
        text: str | None = None,
        *,
        width: int = 1280,
        scheme: str = "light",
        refused: bool = False,
        **state: object,
    ) -> Page:
        found = _reader.new_page()
        watched.append((found, Faults(found, server.address, refused)))
        found.set_viewport_size({"width": width, "height": 900})
        found.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        found.goto(server.at(view, run, TEXTS.get(run, "") if text is None else text, **state))
        settled(found)
        return found

    yield visit
    for found, _ in watched:
        found.close()
    assert [fault for _, faults in watched for fault in faults.found] == []
