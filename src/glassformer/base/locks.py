"""Locks between processes: of a folder that a process changes, and of the output of a command.

Both are locks of the operating system (`filelock`), which end with the process, even if it is killed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors

FILE = "lock"
WAIT = 0.25
"""Seconds to wait for a lock. One attempt is not enough, because `is_held` holds the lock for a moment."""


@contextmanager
def folder_lock(folder: Path, doing: str = "training") -> Iterator[None]:
    """Hold the lock of a folder, the file `folder/lock`, inside the block.

    Args:
        folder: the folder to lock; it must exist.
        doing: activity of the process that holds the lock, for the error message, such as "training".

    Raises:
        GlassError: another process holds the lock, or the folder cannot be written or locked.
    """
    path = folder / FILE
    is_new = not path.exists()
    lock = FileLock(path, timeout=WAIT, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise GlassError(
            f"another process is {doing} in {folder}", "Wait until it has finished, or stop it with Ctrl-C."
        ) from None
    except OSError as error:
        if error.filename is not None:  # the file cannot be opened
            with convert_os_errors(path):
                raise
        if is_new:
            path.unlink(missing_ok=True)
        raise GlassError(
            f"{folder} cannot be locked: its file system does not support locks ({error.strerror or error})",
            "Choose a folder on a local disk, or mount the file system with support for locks.",
        ) from error
    try:
        yield
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Return whether a process currently holds `folder/lock`; nothing is written."""
    path = folder / FILE
    try:
        descriptor = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    except OSError:  # there is no lock file, or no permission to read it
        return False
    try:
        for _ in range(3):  # another process that asks the same holds the lock for a moment
            if lock_descriptor(descriptor, blocking=False):
                return False
            time.sleep(0.005)
        return True
    except OSError:  # the file system does not support locks
        return False
    finally:
        os.close(descriptor)


@contextmanager
def output_lock(out: Path, option: str = "--out", wait: float = WAIT) -> Iterator[None]:
    """Hold the lock of an output path inside the block, so that a second command with this output is refused at once.

    The lock file is in a folder of the user below the folder for temporary files, and its name is a hash of the
    resolved path: relative paths and symbolic links to one output share a lock, the parent folder of the output need
    not exist, and no lock file appears beside the output. The file is removed at the end; a killed process leaves an
    empty file there, which locks nothing.

    Other users, and other machines on a shared disk, do not see the lock. It only makes the error early: every output
    is written under a random name and renamed (see `base.files`), so it is complete without the lock too. For the same
    reason, the block runs without a lock if the file system cannot lock.

    Args:
        out: path of the file or folder that the block writes.
        option: name of the option that gave the path, for the error message.
        wait: number of seconds to wait for the lock.

    Raises:
        GlassError: another command holds the lock, or the current folder does not exist.
    """
    user = os.getuid() if hasattr(os, "getuid") else ""  # on Windows, each user has a folder for temporary files
    with convert_os_errors(out):  # a relative path, but the current folder was deleted
        digest = hashlib.sha256(os.fsencode(os.path.realpath(out))).hexdigest()
    path = Path(tempfile.gettempdir(), f"glassformer-{user}", f"{digest[:32]}.lock")
    lock = FileLock(path, timeout=wait, fallback_to_soft=False)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise GlassError(
            f"another glass command is writing {out}", f"Wait until it has finished, or choose another {option}."
        ) from None
    except OSError:  # the file system does not support locks
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows does not delete open files; there, `release` deletes it
                path.unlink()  # before the release: a process that waits for this file then makes a new one
            lock.release()
