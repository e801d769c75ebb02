"""Open many connections to `glass serve` that send or read nothing, or slowly; a user must still be served.

For each kind of connection, a second process opens them and opens each again that the server closes, while a user asks
for the list of runs and for a text, each time over a new connection. All connections stay on 127.0.0.1.

  python -m tests.campaigns.connections
  python -m tests.campaigns.connections --only "half a head" --counts 520 --seconds 30

This needs Linux and 2,100 open files per process (`ulimit -Hn`).

Exit code: 0 if every request of the user was answered within 2 s, 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from glassformer.base.locks import folder_lock
from tests.parity.written_runs import make_run

TOKEN = "a-token-for-this-campaign"
LIMIT = 2.0
"""Seconds within which the user's requests must be answered."""
PAUSE = 0.25
"""Seconds between two bytes of a slow client, and between two requests of the user."""
REOPEN = (1.0, 3.0)
"""Least and most seconds before a closed connection is opened again."""


def head(line: str, *fields: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{line} HTTP/1.1", "Host: 127.0.0.1", *fields, "", ""]).encode()


AUTHORIZED = f"Authorization: Bearer {TOKEN}"
KINDS: dict[str, tuple[bytes, bytes]] = {
    "nothing sent": (b"", b""),
    "half a head": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b""),
    "head byte by byte": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"a"),
    "half a body": (head("POST /v1/completions", "Content-Length: 9999") + b"{", b""),
    "body byte by byte": (head("POST /v1/completions", "Content-Length: 9999"), b"a"),
    "body byte by byte, with the token": (head("POST /v1/completions", "Content-Length: 9999", AUTHORIZED), b"a"),
    "kept alive": (head("GET /health"), b""),
    "kept alive, then byte by byte": (head("GET /health"), b"G"),
    "page not read": (20 * head("GET /assets/SCRIPT"), b""),
    "events not read, with the token": (head("GET /api/runs/book/events?after=0", AUTHORIZED), b""),
}
"""Kind of connection -> the bytes sent at first, and the bytes sent again and again."""


async def hold(port: int, first: bytes, then: bytes, opened: Callable[[], object]) -> None:
    """Open a connection that reads nothing, and open it again whenever the server closes it; never return."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            try:
                writer.write(first)
                opened()
                while not reader.at_eof() and not writer.is_closing():
                    await asyncio.sleep(PAUSE)
                    writer.write(then)
                    await writer.drain()
            finally:
                writer.transport.abort()
        await asyncio.sleep(random.uniform(*REOPEN))


def hold_all(port: int, first: bytes, then: bytes, count: int, opened: Callable[[], object]) -> None:
    """Hold `count` connections."""

    async def all_of_them() -> None:
        await asyncio.gather(*(hold(port, first, then, opened) for _ in range(count)))

    asyncio.run(all_of_them())


def use(url: str, seconds: float) -> list[float | str]:
    """Ask for the runs and for a text again and again; return the seconds of each answer, or else its error."""
    found: list[float | str] = []
    end = time.monotonic() + seconds
    body = {"model": "book", "prompt": "the", "max_tokens": 2}
    while time.monotonic() < end:
        for method, path, content in (("GET", "/api/runs", None), ("POST", "/v1/completions", body)):
            began = time.monotonic()
            try:
                with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as http:
                    status = http.request(method, path, json=content).status_code
                found.append(time.monotonic() - began if status == 200 else f"status {status}")
            except httpx.HTTPError as error:
                found.append(type(error).__name__)
        time.sleep(PAUSE)
    return found


def try_kind(url: str, kind: str, count: int, seconds: float) -> bool:
    """Hold connections of one kind while the user works; print the line of the table, return whether all is well."""
    first, then = KINDS[kind]
    script = next(
        part for part in httpx.get(url, timeout=60).text.split('"') if part.startswith(("./assets/", "/assets/"))
    )
    first = first.replace(b"/assets/SCRIPT", script.lstrip(".").encode())
    forked = multiprocessing.get_context("fork")
    opened = forked.Semaphore(0)
    port = int(url.rpartition(":")[2])
    holding = forked.Process(target=hold_all, args=(port, first, then, count, opened.release))
    holding.start()
    for _ in range(count):
        opened.acquire(timeout=30)
    found = use(url, seconds)
    holding.terminate()
    holding.join()
    times = sorted(each for each in found if isinstance(each, float))
    refused = Counter(each for each in found if isinstance(each, str))
    errors = ", ".join(f"{number} x {name}" for name, number in refused.items()) or "none"
    slowest = f"{times[-1]:.2f} s" if times else "-"
    print(f"| {kind} | {count:,} | {len(found)} | {errors} | {slowest} |", flush=True)
    return not refused and times[-1] <= LIMIT


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the kinds of connections, print their table, and return 1 if the user was not served, 0 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.connections",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="only the kinds whose name begins with TEXT")
    parser.add_argument("--counts", metavar="N,…", default="520,2000", help="numbers of connections")
    parser.add_argument("--seconds", type=float, default=12.0, metavar="S", help="duration for each kind (default: 12)")
    given = parser.parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    counts = [min(2000, int(count)) for count in given.counts.split(",")]
    with tempfile.TemporaryDirectory(prefix="glass-connections-") as temporary:
        run = make_run(Path(temporary) / "book", tied=False, head_bias=True)
        command = [sys.executable, "-m", "glassformer", "serve", str(run), "--port=0", "--no-open", "--json"]
        server = subprocess.Popen([*command, "--token", TOKEN], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        facts: dict[str, Any] = json.loads(server.stdout.readline())
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))  # not for the server, which has its default
        url = str(facts["url"]).partition("/?")[0]
        try:
            with folder_lock(run):  # so that the run counts as training, and has events
                assert not [each for each in use(url, 1.0) if isinstance(each, str)]
                print("| connections | number | requests | errors | slowest |\n|---|---|---|---|---|", flush=True)
                chosen = [kind for kind in KINDS if kind.startswith(given.only)]
                served = [try_kind(url, kind, count, given.seconds) for count in counts for kind in chosen]
        finally:
            server.terminate()
            server.wait()
    return 0 if all(served) else 1


if __name__ == "__main__":
    sys.exit(main())
