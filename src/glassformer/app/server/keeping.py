"""Keeping what was worked out: the newest few within a budget of bytes, and what is worked out in the background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Kept:
    """Values by key; those that were used longest ago go first when the budget is used up.

    Args:
        budget: bytes that all values together may take. A value that is larger alone is given, but not kept.

    Not safe for several threads at once: who uses it holds the run's lock.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.bytes = budget, 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The value of a key: as it was kept, or made anew.

        Args:
            key: whatever the value depends on, the name of the view included.
            make: makes it.
            size: its bytes.
        """
        if key in self._values:
            self._values.move_to_end(key)
            found: T = self._values[key][0]
            return found
        value = make()
        self._values[key] = value, size(value)
        self.bytes += size(value)
        while self.bytes > self.budget:
            self.bytes -= self._values.popitem(last=False)[1][1]
        return value


class Later:
    """One thing that is worked out in a thread of its own, once.

    Args:
        make: gives it; what it raises is raised by `result`.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._value = make, None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether there is a result."""
        return not self._thread.is_alive()

    def result(self, seconds: float | None = None) -> Any:
        """What was made; None if it is not there after so many seconds (None: it is waited for)."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = self._make()
        except BaseException as error:  # it is the asker's to handle
            self._error = error
