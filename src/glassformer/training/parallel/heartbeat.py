"""Notice processes that no longer answer, although their connections were never closed.

If a host loses its power or its network, TCP tells the other hosts only after about 15 minutes, and if a process is
frozen, never. A collective operation waits as long, and cannot be interrupted. Therefore each process counts up in the
store of the process group, in a thread of its own: a long step, evaluation or save is not mistaken for a lost host.
"""

from __future__ import annotations

import itertools
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from glassformer.base.errors import GlassError

JOIN = timedelta(minutes=5)
"""Maximum time between the starts of the processes, which torchrun starts together; importing PyTorch may be slow."""
BEAT = 5.0
"""Seconds between two beats of a process."""
MISSES = 8
"""Number of checks in a row without a new beat after which a process is lost. Each process counts its own checks, so a
process that was frozen itself, for example by a job scheduler, does not take the others for lost."""
ENDED = "ended"
"""Last beat of a process that has ended its work, and is not lost."""
REMEDY = "Resume with --resume, or let torchrun --max-restarts N do it; saved checkpoints are intact."


class Heartbeat:
    """Beats of the processes of a run, as this process sees them.

    Creating a heartbeat waits for the first beats of all processes.

    Args:
        store: store of the process group.
        rank: index of this process.
        world_size: number of processes.

    Raises:
        GlassError: a process has not started within `JOIN`.
    """

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self._store: Store = store.clone()  # type: ignore[attr-defined]  # an own connection, which nothing else blocks
        self._address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        self._rank = rank
        self._keys = [f"beat of rank {each}" for each in range(world_size)]
        self._missed = [0] * (1 + world_size)  # of the store, then of each process
        self._ended = threading.Event()
        self._store.set(self._keys[rank], f"0 {platform.node()}")
        try:
            self._store.wait(self._keys, JOIN)
        except dist.DistStoreError as error:
            absent = [str(each) for each, key in enumerate(self._keys) if not self._store.check([key])]
            raise GlassError(
                f"no process with rank {', '.join(absent)} started within {JOIN.total_seconds() / 60:.0f} minutes",
                "Read the messages of torchrun on the other hosts, and start all processes again.",
            ) from error
        self._beats = self._store.multi_get(self._keys)  # of each process: a count and the name of its host

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside the context, beat, and end this process if another one is lost."""
        beating, watching = (threading.Thread(target=work, daemon=True) for work in (self._beat, self._watch))
        beating.start()
        watching.start()
        try:
            yield
        finally:
            self._ended.set()
            beating.join(BEAT)  # an operation of a lost store never returns

    def silent(self, misses: int) -> str | None:
        """Return which processes, or else the store, have missed this many beats in a row; None: there are none."""
        lost = [rank for rank, missed in enumerate(self._missed[1:]) if missed >= misses]
        seconds = f"{BEAT * max(self._missed):.0f} seconds"
        if self._missed[0] >= misses:  # then no beats can be read
            return f"the store at {self._address} has not answered for {seconds}"
        if len(lost) == 1:
            return f"rank {lost[0]} on {self._host(lost[0])} has not answered for {seconds}"
        hosts = ", ".join(sorted({self._host(rank) for rank in lost}))
        return f"ranks {', '.join(map(str, lost))} on {hosts} have not answered for {seconds}" if lost else None

    def _host(self, rank: int) -> str:
        return self._beats[rank].decode().partition(" ")[2]

    def _beat(self) -> None:
        """Write this process's beats and read all; if the host of the store is lost, an operation may never return."""
        with suppress(RuntimeError):  # the connection was closed: no further beat can be read
            for count in itertools.count(1):
                self._store.set(self._keys[self._rank], f"{count} {platform.node()}")
                self._beats = self._store.multi_get(self._keys)
                if self._ended.wait(BEAT):
                    self._store.set(self._keys[self._rank], f"{ENDED} {platform.node()}")
                    return

    def _watch(self) -> None:
        """Count the missed beats, and end this process if there are too many."""
        before = self._beats
        while not self._ended.wait(BEAT):
            beats = self._beats
            if beats is before:  # nothing was read, which says nothing about the other processes
                self._missed[0] += 1
            else:
                same = (
                    new == old and not new.startswith(ENDED.encode()) for new, old in zip(beats, before, strict=True)
                )
                self._missed = [0, *(m + 1 if each else 0 for m, each in zip(self._missed[1:], same, strict=True))]
            before = beats
            if problem := self.silent(MISSES):
                self._end(problem)

    def _end(self, problem: str) -> NoReturn:
        """End this process at once, because the main thread may be waiting in an operation without end.

        On each host, the lowest rank that still beats prints the error. If no beats can be read, it is the second rank,
        because the store may be in the first one.
        """
        error = GlassError(f"{problem}: a process is frozen, or a host or the network has failed", REMEDY)
        of_host = [rank for rank in range(len(self._keys)) if self._host(rank) == self._host(self._rank)]
        if self._missed[0] >= MISSES:
            beating = of_host[1:] or of_host
        else:
            beating = [rank for rank in of_host if self._missed[1 + rank] < MISSES]
        if self._rank == beating[0]:
            print(error, file=sys.stderr, flush=True)
        os._exit(2)
