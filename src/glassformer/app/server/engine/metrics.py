"""Prometheus metrics of the server, in a separate Prometheus registry."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

RATE_SECONDS = 10.0
"""Seconds over which a rate is averaged."""
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters, gauges and a histogram of the server; metrics of an engine have the name of its run as a label."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "glass_requests", "answered requests of the API", ["route", "status"], registry=registry
        )
        self.prompt_tokens = Counter("glass_prompt_tokens", "tokens of accepted prompts", ["run"], registry=registry)
        self.generated_tokens = Counter("glass_generated_tokens", "generated tokens", ["run"], registry=registry)
        self.refused_requests = Counter(
            "glass_queue_full", "requests refused because the queue was full", ["run"], registry=registry
        )
        self.time_to_first_token = Histogram(
            "glass_time_to_first_token_seconds",
            "time from the request to the first token of a text",
            ["run"],
            buckets=SECONDS,
            registry=registry,
        )
        self._queue = Gauge("glass_queue_length", "texts that wait in the queue", ["run"], registry=registry)
        self._rows = Gauge("glass_batch_rows", "texts in the batch", ["run"], registry=registry)
        self._speed = Gauge(
            "glass_tokens_per_second",
            f"generated tokens per second, over {RATE_SECONDS:.0f} s",
            ["run"],
            registry=registry,
        )

    def watch(self, run: str, queue: Callable[[], float], rows: Callable[[], float]) -> Rate:
        """Add the gauges of an engine.

        Args:
            run: name of the engine's run.
            queue: function that returns the length of the engine's queue.
            rows: function that returns the number of texts in the engine's batch.

        Returns:
            The `Rate` to which the engine must add the number of generated tokens after each step.
        """
        rate = Rate()
        self._queue.labels(run).set_function(queue)
        self._rows.labels(run).set_function(rows)
        self._speed.labels(run).set_function(rate.per_second)
        return rate

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class Rate:
    """Mean rate per second, over the last `RATE_SECONDS` complete seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque(maxlen=int(RATE_SECONDS) + 1)  # (second, count)

    def add(self, count: int) -> None:
        """Add `count` to the current second. Call from one thread only."""
        now = int(time.monotonic())
        before = self._counts.pop()[1] if self._counts and self._counts[-1][0] == now else 0
        self._counts.append((now, before + count))

    def per_second(self) -> float:
        """Return the mean count per second, over the last `RATE_SECONDS` complete seconds."""
        now = int(time.monotonic())
        return sum(count for second, count in list(self._counts) if now - RATE_SECONDS <= second < now) / RATE_SECONDS
