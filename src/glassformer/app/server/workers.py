"""Thread pool with a maximum size and bounded queues, for slow work that must not block the event loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from glassformer.app.server.request_errors import MEMORY_REMEDY, RefusedRequestError
from glassformer.base.errors import convert_memory_errors

T = TypeVar("T")
THREADS = 8
"""Default maximum number of threads."""
WAITING = 64
"""Maximum number of requests that wait for a thread, and maximum number that wait for each run."""


class Workers:
    """Bounded pool of threads. A cancelled call, for example when the server stops, does not wait for its work to end.

    Args:
        threads: maximum number of threads.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._run_locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run `function(*arguments)` in a thread, and return its result or raise its error.

        Raises:
            GlassError: too many calls are waiting, or there is not enough memory.
        """
        _refuse_if_full(self._limiter.statistics().tasks_waiting)
        return await to_thread.run_sync(
            _with_clear_errors, function, arguments, limiter=self._limiter, abandon_on_cancel=True
        )

    async def of_run(self, name: str, function: Callable[..., T], *arguments: Any) -> T:
        """Run `function(*arguments)` in a thread, one call at a time for each run.

        A view holds the lock of its run, so the views of a run must take turns. A call that waits for
        its turn does not occupy a thread, because other runs need the threads.

        Raises:
            GlassError: as in `__call__`.
        """
        lock = self._run_locks[name]
        _refuse_if_full(lock.statistics().tasks_waiting)
        async with lock:
            return await self(function, *arguments)


def _refuse_if_full(waiting: int) -> None:
    if waiting >= WAITING:
        raise RefusedRequestError(f"{WAITING} requests are already waiting", "Try again in a moment.", 429)


def _with_clear_errors(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    with convert_memory_errors(MEMORY_REMEDY):
        return function(*arguments)
