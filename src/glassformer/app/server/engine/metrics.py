"""Prometheus metrics of the server, in their own registry."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SPAN = 10.0
"""Seconds over which a speed is measured."""
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All counters; each engine's are labelled with its run."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter("glass_requests", "requests answered", ["route", "status"], registry=registry)
        self.prompt = Counter("glass_prompt_tokens", "tokens of prompts taken", ["run"], registry=registry)
        self.generated = Counter("glass_generated_tokens", "tokens written", ["run"], registry=registry)
        self.refused = Counter("glass_queue_full", "requests refused with 429", ["run"], registry=registry)
        self.first = Histogram(
            "glass_time_to_first_token_seconds",
            "from the request to the first token of a text",
            ["run"],
            buckets=SECONDS,
            registry=registry,
        )
        self._queue = Gauge("glass_queue_length", "texts that wait for the batch", ["run"], registry=registry)
        self._rows = Gauge("glass_batch_rows", "texts in the batch", ["run"], registry=registry)
        self._speed = Gauge(
            "glass_tokens_per_second", f"tokens written a second, over {SPAN:.0f} s", ["run"], registry=registry
        )

    def watch(self, run: str, queue: Callable[[], float], rows: Callable[[], float]) -> Rate:
        """Show an engine; what it writes is to be told to the rate that comes back."""
        rate = Rate()
        self._queue.labels(run).set_function(queue)
        self._rows.labels(run).set_function(rows)
        self._speed.labels(run).set_function(rate.a_second)
        return rate

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)


class Rate:
    """Mean rate per second, over the last `SPAN` seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque(maxlen=int(SPAN) + 1)  # whole seconds, and how many in each

    def add(self, count: int) -> None:
        """Add `count` to the current second. Call from one thread only."""
        now = int(time.monotonic())
        before = self._counts.pop()[1] if self._counts and self._counts[-1][0] == now else 0
        self._counts.append((now, before + count))

    def a_second(self) -> float:
        """The mean of the whole seconds that have passed."""
        now = int(time.monotonic())
        return sum(count for second, count in list(self._counts) if now - SPAN <= second < now) / SPAN
