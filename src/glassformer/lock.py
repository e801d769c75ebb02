"""One process at a time in a run folder. The operating system lets go of the lock however the process ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.errors import GlassError


@contextmanager
def only_one(folder: Path, doing: str = "training") -> Iterator[None]:
    """Hold `folder/lock` inside the block. `doing`: what another process would do there.

    Raises:
        GlassError: another process holds it.
    """
    with (folder / "lock").open("a+b") as file:
        try:
            _lock(file.fileno())
        except OSError:
            raise GlassError(
                f"another process is {doing} in {folder}", "Wait until it has ended, or stop it with Ctrl-C."
            ) from None
        yield


def is_held(folder: Path) -> bool:
    """Whether another process holds `folder/lock` now; nothing is written."""
    try:
        file = (folder / "lock").open("rb")
    except OSError:  # none, or none that may be read
        return False
    with file:
        try:
            _lock(file.fileno())
        except BlockingIOError:
            return True
        except OSError:  # Windows has no error of its own for it; elsewhere the file system knows no locks
            return os.name == "nt"
    return False


def _lock(descriptor: int) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
