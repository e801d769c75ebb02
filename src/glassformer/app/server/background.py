"""Background work: futures from threads, and long tasks that run one at a time and report intermediate results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from glassformer.base.errors import GlassError

T = TypeVar("T")
OnResult = Callable[[Any], None]


def in_background(make: Callable[[], T]) -> Future[T]:
    """Call `make` in a new daemon thread and return a future of its result.

    Unlike a thread of `ThreadPoolExecutor`, a daemon thread does not delay the exit of the server.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = make()
        except BaseException as error:  # raised by future.result()
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    return future


class BackgroundTask:
    """Long task that a button of the page starts.

    Args:
        do: function that does the work; its argument is a function to call with each intermediate result. `do` must not
            use the model of the views.
        lock: lock to hold during the work, so that only one task runs at a time.

    Attributes:
        results: results reported so far; the list only grows.
        waiting: whether the task still waits for `lock`.
    """

    def __init__(self, do: Callable[[OnResult], Any], lock: threading.Lock) -> None:
        self.results: list[Any] = []
        self.waiting = True
        self._future = in_background(lambda: self._run(do, lock))

    @property
    def finished(self) -> bool:
        """Whether the task has ended, with or without an error."""
        return self._future.done()

    @property
    def succeeded(self) -> bool:
        """Whether the task has ended without an error."""
        return self.finished and self.error is None

    @property
    def error(self) -> GlassError | None:
        """`GlassError` that ended the task; None if the task waits, is running or succeeded."""
        try:
            self.result()
        except GlassError as error:
            return error
        return None

    def result(self) -> Any | None:
        """Return the result of the task; None until it has ended.

        Raises:
            GlassError: the task failed.
        """
        return self._future.result() if self.finished else None

    def facts(self) -> dict[str, Any]:
        """Return the state ("waiting", "working", "failed" or "done"), and the error (problem and remedy) or None."""
        error = self.error
        state = "done" if self.finished else "waiting" if self.waiting else "working"
        return {
            "state": "failed" if error else state,
            "error": None if error is None else {"what": error.problem, "remedy": error.remedy},
        }

    def _run(self, do: Callable[[OnResult], Any], lock: threading.Lock) -> Any:
        with lock:
            self.waiting = False
            return do(self.results.append)


IDLE: dict[str, Any] = {"state": "idle", "error": None}
"""State of a task that was never started, in the form of `BackgroundTask.facts`."""
