"""Run a real server on a free port, in a thread of this process, for tests of the API."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from glassformer.app.server.access import Access
from glassformer.app.server.app import make_app
from glassformer.app.server.engine import Engines
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.server import Server, listen

TOKEN = "a-token-for-tests"


@dataclass(frozen=True)
class Served:
    """A running server: its address, an authorized client, its generation engines and its registry of models."""

    url: str
    port: int
    http: httpx.Client
    engines: Engines
    registry: ModelRegistry


@contextmanager
def serving(folders: Sequence[Path], rows: int = 64, waiting: int = 256) -> Iterator[Served]:
    """Serve runs inside the context."""
    registry = ModelRegistry(folders, "cpu")
    listening = listen("127.0.0.1", 0)
    ready = threading.Event()
    port = listening.getsockname()[1]
    engines = Engines(registry, rows, waiting)
    server = Server(make_app(registry, Access(TOKEN, port), engines=engines), ready.set)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert ready.wait(20)
    url = f"http://127.0.0.1:{port}"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
            yield Served(url, port, http, engines, registry)
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
