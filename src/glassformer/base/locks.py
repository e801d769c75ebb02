"""Locks that let only one process at a time write to a folder; a lock is released when its block or process ends."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors

FILE = "lock"
ATTEMPTS = 5
PAUSE = 0.05
"""Seconds between two attempts to lock. One attempt is not enough, because `is_held` holds the lock for a moment."""
HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
"""Error numbers that mean that another process holds the lock; any other number means that locking is not possible."""


@contextmanager
def folder_lock(folder: Path, doing: str = "training") -> Iterator[None]:
    """Hold the lock of a folder, the file `folder/lock`, inside the block.

    Args:
        folder: the folder to lock; it must exist.
        doing: activity of the process that holds the lock, for the error message, such as "training".

    Raises:
        GlassError: another process holds the lock, or the folder cannot be written or locked.
    """
    with _open_locked(folder, doing):
        yield


def is_held(folder: Path) -> bool:
    """Return whether a process currently holds `folder/lock`; nothing is written."""
    try:
        file = (folder / FILE).open("rb")
    except OSError:  # there is no lock file, or no permission to read it
        return False
    with file:
        try:
            _lock(file.fileno(), shared=True)
        except OSError as error:
            return _is_held_elsewhere(error)
    return False


def _open_locked(folder: Path, doing: str) -> BinaryIO:
    """Open and lock `folder/lock`; closing the file releases the lock."""
    path = folder / FILE
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        with convert_os_errors(path):
            new = not path.exists()
            file = path.open("a+b")
        try:
            _lock(file.fileno(), shared=False)
        except OSError as error:
            file.close()
            if not _is_held_elsewhere(error):
                if new:
                    path.unlink(missing_ok=True)
                raise GlassError(
                    f"{folder} cannot be locked: its file system does not support locks ({error.strerror or error})",
                    "Choose a folder on a local disk, or mount the file system with support for locks.",
                ) from error
            continue
        if _is_same_file(file, path):
            return file
        file.close()  # another process removed the folder meanwhile: this lock has no effect
    raise GlassError(f"another process is {doing} in {folder}", "Wait until it has finished, or stop it with Ctrl-C.")


def _is_same_file(file: BinaryIO, path: Path) -> bool:
    """Return whether an open file is still the file at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _is_held_elsewhere(error: OSError) -> bool:
    return os.name == "nt" or error.errno in HELD  # Windows has no separate error for a lock that is held


def _lock(descriptor: int, shared: bool) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
