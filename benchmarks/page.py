"""Speed of the page on a long text: time to first paint, time to an attention map, and bytes sent.

A run with random weights, the layers and heads of GPT-2 small and a small width is served by `glass serve` in a
separate process; chromium opens the attention map of a text of 1,024 tokens, each time with an empty cache.
`first_paint_ms` is the time to the browser's first contentful paint, `map_ms` the time from the start of the navigation
to the drawn map, and `head_ms` the time from the choice of another head to the frame after its map is drawn. `views`
has the times of four other views, and `tokens_4096` the times of the map and of up to five heads for a text
of 4,096 tokens.

    python benchmarks/page.py --out page.json
    python benchmarks/page.py --openings 1 --heads 5 --width 768 --head-width 64
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import torch
from playwright.sync_api import Browser, Page, Response, sync_playwright
from random_run import make_run

ALPHABET = string.ascii_letters + " .,"
VIEWS = {"tokens": "Tokens", "score": "Score anatomy", "focus": "Row focus", "heads": "All heads"}
DRAWN = """([selector, text]) => new Promise((done) => {
  const look = () => {
    const view = document.querySelector("section.view");
    const there = view?.getAttribute("aria-busy") === "false" && view.querySelector("footer .copy") !== null
      && view.querySelector(selector)?.textContent === text;
    if (there) requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
    else setTimeout(look, 2);
  };
  look();
})"""
TURN = f"""async ([address, ...expected]) => {{
  const start = performance.now();
  location.hash = address;
  return (await ({DRAWN})(expected)) - start;
}}"""
MAP = ["#view-title", "Attention map"]


@contextmanager
def served(folder: Path, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yield the server's address with its token, and the seconds until it was ready."""
    words = [sys.executable, "-m", "glassformer", "serve", str(folder), "--no-open", "--json", "--port", "0"]
    if options.page:
        words += ["--page", str(options.page)]
    start = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    server = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["url"], time.perf_counter() - start
    finally:
        server.terminate()
        server.wait(30)


def address_of(view: str, text: str, **state: object) -> str:
    """Return the fragment of the page's URL for a view, a text and settings of the view."""
    kept = "".join(f"&.{name}={value}" for name, value in state.items())
    return f"#{view}?run=wide&text={quote_plus(text)}{kept}"


class Replies:
    """Sizes of the responses to a page, in bytes."""

    def __init__(self, page: Page) -> None:
        self.sizes: list[int] = []
        page.on("response", self._note)

    def _note(self, response: Response) -> None:
        self.sizes.append(int(response.headers.get("content-length", 0)))


def opening(browser: Browser, url: str, text: str) -> dict[str, Any]:
    """Open the attention map with an empty cache, and return milliseconds and bytes."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    replies = Replies(page)
    page.goto(url + address_of("attention", text), wait_until="commit")
    drawn = page.evaluate(DRAWN, MAP)
    paint = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
    found = {"first_paint": paint, "map": drawn, "bytes": sum(replies.sizes), "largest_reply": max(replies.sizes)}
    page.close()
    return found


def head_turned(page: Page, text: str, head: str) -> float:
    """Return the milliseconds from the choice of a head to the frame after its map is drawn."""
    found: float = page.evaluate(TURN, [address_of("attention", text, head=head), "aside h3", head])
    return found


def view_turned(page: Page, text: str, view: str) -> dict[str, float]:
    """Return the milliseconds of a change to another view, and the number of SVG nodes on the page."""
    took = page.evaluate(TURN, [address_of(view, text), "#view-title", VIEWS[view]])
    return {"ms": took, "svg_nodes": page.evaluate("() => document.querySelectorAll('svg, svg *').length")}


def measure(browser: Browser, url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure and return all figures."""
    rng = random.Random(0)
    text, longer = ("".join(rng.choices(ALPHABET, k=tokens)) for tokens in (1024, 4096))
    openings = [opening(browser, url, text) for _ in range(options.openings)]
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    replies = Replies(page)
    page.goto(url + address_of("attention", text))
    page.evaluate(DRAWN, MAP)
    names = [f"dec.{rng.randrange(12)}.self.{rng.randrange(12)}" for _ in range(options.heads)]
    heads = [head_turned(page, text, name) for name in names]
    views = {view: view_turned(page, text, view) for view in VIEWS}
    first = head_turned(page, longer, "dec.11.self.11")
    others = [head_turned(page, longer, name) for name in dict.fromkeys(names[:5])]
    return {
        "openings": openings,
        "first_paint_ms": statistics.median(each["first_paint"] for each in openings),
        "map_ms": {"first": openings[0]["map"], "median": statistics.median(each["map"] for each in openings)},
        "bytes_before_interaction": max(each["bytes"] for each in openings),
        "head_ms": {"median": statistics.median(heads), "largest": max(heads), "count": len(heads)},
        "views": views,
        "tokens_4096": {"first_map_ms": first, "head_ms": statistics.median(others)},
        "largest_reply": max(replies.sizes),
    }


def main() -> None:
    """Measure, print the results, and write them as JSON if `--out` is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--head-width", type=int, default=4)
    parser.add_argument("--openings", type=int, default=5)
    parser.add_argument("--heads", type=int, default=40, help="number of heads to choose one by one")
    parser.add_argument("--threads", type=int, default=1, help="threads of the server")
    parser.add_argument("--page", type=Path, metavar="DIR", help="folder of another build of the page")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        shape = {"layers": 12, "heads": 12, "width": options.width, "head_width": options.head_width, "context": 4096}
        make_run(Path(home) / "wide", {**shape, "positions": "sinusoidal"}, ALPHABET, 0.1)
        with served(Path(home) / "wide", options) as (url, ready):
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            found = {
                "settings": {"layers": 12, "heads": 12, "width": options.width, "threads": options.threads},
                "machine": {
                    "processor": platform.processor() or platform.machine(),
                    "cores": os.cpu_count(),
                    "load": os.getloadavg()[0],
                    "torch": torch.__version__,
                    "chromium": browser.version,
                },
                "server_ready_s": ready,
                **measure(browser, url, options),
            }
            browser.close()
    text = json.dumps(found, indent=2)
    if options.out:
        options.out.write_text(f"{text}\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
