"""Long work that somebody asked for with a button: one at a time, in a thread of its own, with what it has so far."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from glassformer.app.server.keeping import Later
from glassformer.base.errors import GlassError

Tell = Callable[[Any], None]


class Work:
    """One such work.

    Args:
        do: does it; it is given a function that takes each result as it comes. It must not touch what views use.
        turns: held while it is done, so that what is asked for meanwhile waits.

    Attributes:
        told: the results so far; only ever added to.
        waiting: whether another work has to end first.
    """

    def __init__(self, do: Callable[[Tell], Any], turns: threading.Lock) -> None:
        self.told: list[Any] = []
        self.waiting = True
        self._later = Later(lambda: self._run(do, turns))

    @property
    def ready(self) -> bool:
        """Whether it has ended."""
        return self._later.ready

    @property
    def done(self) -> bool:
        """Whether it has ended well."""
        return self.ready and self.error is None

    @property
    def error(self) -> GlassError | None:
        """Why it failed; None of one that did not, or is still at it."""
        try:
            self.result()
        except GlassError as error:
            return error
        return None

    def result(self) -> Any | None:
        """What it gave; None while it is not done.

        Raises:
            GlassError: it failed.
        """
        return self._later.result() if self.ready else None

    def facts(self) -> dict[str, Any]:
        """For the page: the state, "waiting", "working", "failed" or "done", and the error's two lines or null."""
        error = self.error
        state = "done" if self.ready else "waiting" if self.waiting else "working"
        return {
            "state": "failed" if error else state,
            "error": None if error is None else {"what": error.problem, "remedy": error.remedy},
        }

    def _run(self, do: Callable[[Tell], Any], turns: threading.Lock) -> Any:
        with turns:
            self.waiting = False
            return do(self.told.append)


IDLE: dict[str, Any] = {"state": "idle", "error": None}
"""The facts of a work that nobody asked for."""
