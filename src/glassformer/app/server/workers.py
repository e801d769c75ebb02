"""Threads for all that is slow, so that the event loop never waits: a bounded number, and bounded queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from glassformer.app.server.request_errors import SHORTER, RefusedRequestError
from glassformer.base.errors import clear_memory_errors

T = TypeVar("T")
THREADS = 8
WAITING = 64
"""Questions that are worked on at once, and that may wait."""


class Workers:
    """Bounded pool of threads. A cancelled call, as at the server's stop, does not wait for its work to end.

    Args:
        threads: that work at once.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._turns: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def __call__(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work(*arguments)` in a thread, and return its result or raise its error.

        Raises:
            GlassError: too many wait already, or memory is short.
        """
        _refuse_more(self._limiter.statistics().tasks_waiting)
        return await to_thread.run_sync(
            _with_clear_errors, work, arguments, limiter=self._limiter, abandon_on_cancel=True
        )

    async def of_run(self, name: str, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work(*arguments)` in a thread, one call at a time for each run.

        The views of a run take turns anyway: those that wait do so without a thread, which others need.
        """
        turn = self._turns[name]
        _refuse_more(turn.statistics().tasks_waiting)
        async with turn:
            return await self(work, *arguments)


def _refuse_more(waiting: int) -> None:
    if waiting >= WAITING:
        raise RefusedRequestError(f"{WAITING} questions wait already", "Ask again in a moment.", 429)


def _with_clear_errors(work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    with clear_memory_errors(SHORTER):
        return work(*arguments)
