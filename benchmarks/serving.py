"""The API under load: many streams at once compared with one at a time, and a check that batching changes no text.

A run with random weights and, by default, the shape of nanoGPT's character model (6 layers, 6 heads, width 384: 10.65 M
parameters) is served by `glass serve` in a separate process. The requests are random with a fixed seed: prompts of 1 to
120 characters, 20 to 200 tokens, greedy or sampled in several ways. First they are sent one at a time, then by
`--streams` clients, each of which sends its next request when its previous one has ended. The speed of a single stream
is measured with PyTorch, before and after the many streams, so that a change of the machine's speed is seen; with
another backend, a single stream of that backend is measured too. Some of the texts are then generated again by the
library, one by one, and compared. With random weights logits differ clearly, so mixed-up texts would be noticed.

The clients use plain sockets, because an HTTP library would use much of the CPU time of a small machine.

    python benchmarks/serving.py --threads 2
    python benchmarks/serving.py --threads 1 --seconds 20 --out look.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import torch
from isa import add_isa, restrict
from random_run import make_run

from glassformer.backends.choosing import open_engine
from glassformer.base.backends import BACKENDS
from glassformer.base.config import SampleConfig
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import TextModel

ALPHABET = string.ascii_letters + " .,;:!?'\n-&$3"
WAYS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.8},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.7, "top_k": 20},
)


@dataclass
class Asked:
    """A request and its result."""

    number: int
    body: dict[str, Any]
    text: str = ""
    tokens: int = 0
    first: float | None = None  # seconds until the first part of the text
    took: float = 0.0
    error: str | None = None
    gaps: list[float] = field(default_factory=list)  # seconds between two parts


def requests(model: str, seed: int) -> Iterator[Asked]:
    """Yield an endless sequence of random requests, the same for the same seed."""
    random_ = random.Random(seed)
    number = 0
    while True:
        body = {
            "model": model,
            "prompt": "".join(random_.choices(ALPHABET, k=random_.randint(1, 120))),
            "max_tokens": random_.randint(20, 200),
            "seed": random_.randrange(2**32),
            "stream": True,
            "stream_options": {"include_usage": True},
            **random_.choice(WAYS),
        }
        yield Asked(number, body)
        number += 1


class Client:
    """A client with a persistent connection.

    Args:
        url: address of the server.
        token: access token of the server.
    """

    def __init__(self, url: str, token: str) -> None:
        self.host = urlsplit(url).netloc
        self.token = token
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, asked: Asked) -> None:
        """Send a request, and read the whole response."""
        begun = time.perf_counter()
        try:
            await self._ask(asked, begun)
        except Exception as error:
            asked.error = f"{type(error).__name__}: {error}"
            self.close()
        asked.took = time.perf_counter() - begun

    async def _ask(self, asked: Asked, begun: float) -> None:
        if self.reader is None or self.writer is None:
            host, _, port = self.host.partition(":")
            self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=2**20)
        body = json.dumps(asked.body).encode("utf-8")
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode("ascii") + body)
        status = (await self.reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
        if status != b"200":
            raise RuntimeError(f"status {status.decode()}")
        await self._events(asked, begun)

    async def _events(self, asked: Asked, begun: float) -> None:
        """Read the chunks of a response: each has a line with its length, and whole events."""
        assert self.reader is not None
        last = begun
        ended = False
        while size := int(await self.reader.readline(), 16):
            data = (await self.reader.readexactly(size + 2))[:-2]
            now = time.perf_counter()
            for event in data.decode("utf-8").split("\n\n"):
                if event == "data: [DONE]":
                    ended = True
                elif event:
                    found = json.loads(event.removeprefix("data: "))
                    if "error" in found:
                        raise RuntimeError(found["error"]["message"])
                    asked.text += "".join(choice["text"] for choice in found["choices"])
                    asked.tokens = found.get("usage", {}).get("completion_tokens", 0)
            if asked.first is None:
                asked.first = now - begun
            elif not ended:
                asked.gaps.append(now - last)
            last = now
        await self.reader.readexactly(2)
        if not ended:
            raise RuntimeError("the stream ended early")

    def close(self) -> None:
        """Close the connection."""
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def load(
    url: str, token: str, source: Iterator[Asked], streams: int, seconds: float
) -> tuple[list[Asked], float]:
    """Send requests for `seconds` from `streams` clients; return them and the seconds until the last response."""
    done: list[Asked] = []
    begun = time.perf_counter()

    async def one() -> None:
        client = Client(url, token)
        while time.perf_counter() - begun < seconds:
            asked = next(source)
            await client.ask(asked)
            done.append(asked)
        client.close()

    await asyncio.gather(*(one() for _ in range(streams)))
    return done, time.perf_counter() - begun


def alone(text_model: TextModel, asked: Asked) -> tuple[str, int]:
    """Generate the text of a request with the library, and return it with its number of tokens."""
    body = asked.body
    settings = SampleConfig(
        tokens=body["max_tokens"],
        temperature=body["temperature"],
        top_k=body.get("top_k"),
        top_p=body.get("top_p"),
        seed=body["seed"],
    )
    (sample,) = text_model.generate([body["prompt"]], settings)
    return sample.text, sample.tokens


def measures(done: list[Asked], took: float) -> dict[str, Any]:
    """Return speed, waiting times and errors."""
    good = [asked for asked in done if asked.error is None]
    first = sorted(asked.first for asked in good if asked.first is not None)
    gaps = sorted(gap for asked in good for gap in asked.gaps)
    return {
        "requests": len(done),
        "errors": [asked.error for asked in done if asked.error is not None][:10],
        "seconds": took,
        "tokens_per_second": sum(asked.tokens for asked in good) / took,
        "first_token": {"median": statistics.median(first), "p95": share(first, 0.95), "largest": first[-1]},
        "between_parts": {"median": statistics.median(gaps), "p95": share(gaps, 0.95), "largest": gaps[-1]},
    }


def share(ordered: list[float], part: float) -> float:
    """Return the quantile `part` of sorted values."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def serve(run: Path, threads: int, backend: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Start `glass serve`, and return the process and its JSON output when it is ready."""
    words = [sys.executable, "-m", "glassformer", "serve", str(run), "--no-open", "--json", "--port", "0"]
    words += ["--backend", backend]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def single_stream(run: Path, options: argparse.Namespace, backend: str) -> dict[str, Any]:
    """Measure one request at a time."""
    process, said = serve(run, options.threads, backend)
    try:
        address = said["url"].partition("/?")[0], said["token"]
        source = requests(said["runs"][0], seed=1)
        asyncio.run(load(*address, source, 1, 2.0))  # warm-up
        return measures(*asyncio.run(load(*address, source, 1, options.seconds / 4)))
    finally:
        process.terminate()
        process.wait(20)


def measure(run: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure single streams, then all streams, then a single stream again, and compare some texts at the end."""
    own_single = None if options.backend == "torch" else single_stream(run, options, options.backend)
    singles = [single_stream(run, options, "torch")]
    process, said = serve(run, options.threads, options.backend)
    try:
        address = said["url"].partition("/?")[0], said["token"]
        memory = psutil.Process(process.pid).memory_info
        source = requests(said["runs"][0], seed=1)
        asyncio.run(load(*address, source, options.streams, options.seconds / 4))  # warm-up that allocates all memory
        before = memory().rss
        cpu = psutil.Process(process.pid).cpu_times()
        many, took_many = asyncio.run(load(*address, source, options.streams, options.seconds))
        after = memory().rss
        now = psutil.Process(process.pid).cpu_times()
        spent = now.user + now.system - cpu.user - cpu.system
    finally:
        process.terminate()
        process.wait(20)
    singles.append(single_stream(run, options, "torch"))
    torch.set_num_threads(options.threads)
    checked = random.Random(0).sample(
        good := [asked for asked in many if asked.error is None], min(options.check, len(good))
    )
    text_model = OpenedRun.load(run, device="cpu").writer
    text_model.engine = open_engine(options.backend, text_model.model)
    expected = [alone(text_model, asked) for asked in checked]
    wrong = [
        asked.number for asked, found in zip(checked, expected, strict=True) if (asked.text, asked.tokens) != found
    ]
    all_ = measures(many, took_many)
    return {
        "single_stream_torch": singles,
        "single_stream": own_single,
        "streams": all_,
        "ratio": all_["tokens_per_second"] / statistics.mean(each["tokens_per_second"] for each in singles),
        "compared": len(checked),
        "texts_that_differ": wrong,
        "server_cpu_seconds": spent,
        "memory_before_mb": before / 2**20,
        "memory_after_mb": after / 2**20,
    }


def main() -> int:
    """Measure and print; the exit code is 0 if all conditions hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--backend", choices=BACKENDS[1:], default="torch", help="backend of the server; default torch")
    parser.add_argument("--check", type=int, default=200, help="responses to generate again and compare")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    with tempfile.TemporaryDirectory() as folder:
        sizes = {name: getattr(options, name) for name in ("layers", "width", "heads", "context")}
        make_run(Path(folder) / "random", sizes, ALPHABET, 0.02)
        found = measure(Path(folder) / "random", options)
    settings = {name: value for name, value in vars(options).items() if name != "out"}
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    holds = {
        "no errors": not any(each["errors"] for each in [*found["single_stream_torch"], found["streams"]]),
        "no mixed texts": not found["texts_that_differ"],
        "3 times a single stream on PyTorch": found["ratio"] >= 3,
        "p95 of the first token below 1 s": found["streams"]["first_token"]["p95"] < 1,
        "memory grows by less than 10 %": found["memory_after_mb"] < 1.1 * found["memory_before_mb"],
    }
    text = json.dumps({"settings": settings, "machine": machine, **found, "holds": holds}, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
