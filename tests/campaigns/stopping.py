"""Stop this process before a chosen file operation.

File operations are observed through Python's audit events and a wrapped `os.fsync`, so that the tested program needs no
changes. Writes by compiled code, such as safetensors, raise no audit events.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")


@dataclass(frozen=True)
class Stop:
    """The file operation before which to stop a process.

    Attributes:
        watched: folder in which file operations are logged and counted.
        log: file that gets a line for each operation; with several processes, `.RANK` is appended to its name.
        before: number of the operation, from 1, before which the signal is sent; None to log only.
        signal: number of the signal.
        rank: rank of the process to stop, if there are several.
    """

    watched: str
    log: str
    before: int | None = None
    signal: int = 9
    rank: int = 0

    def of_rank(self, rank: int) -> Stop:
        """Return the settings for one of several processes: a separate log, and a stop only if `rank` matches."""
        before = self.before if rank == self.rank else None
        return replace(self, log=f"{self.log}.{rank}", before=before)


def install(stop: Stop) -> None:
    """Log the file operations of this process from now on, and stop it before the chosen operation."""
    log = os.open(stop.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    own = os.getpid()
    count = 0

    def operation(kind: str, path: str) -> None:
        nonlocal count
        inside = os.path.relpath(path, stop.watched)
        if inside.startswith("..") or os.getpid() != own:
            return
        count += 1
        os.write(log, f"{kind} {inside}\n".encode())
        if count == stop.before:
            os.kill(own, stop.signal)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str) and isinstance(flags, int) and flags & WRITING:
                operation("open", os.path.abspath(path))  # noqa: PTH100 - Path would open more events
        elif event in EVENTS and isinstance(arguments[0], str | os.PathLike):
            operation(event.removeprefix("os."), _full(os.fspath(arguments[0]), arguments))

    fsync = os.fsync

    def noted_fsync(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        operation("fsync", str(Path(f"/proc/self/fd/{number}").readlink()))
        fsync(descriptor)

    setattr(os, "fsync", noted_fsync)  # noqa: B010 - an assignment has another type
    sys.addaudithook(heard)


def _full(path: str, arguments: tuple[Any, ...]) -> str:
    """Return the absolute path of a file operation; the given path may be relative to an open folder."""
    folder = arguments[-1]
    if not os.path.isabs(path) and isinstance(folder, int) and folder >= 0:  # noqa: PTH117
        return str(Path(f"/proc/self/fd/{folder}").readlink() / path)
    return os.path.abspath(path)  # noqa: PTH100
