"""Set the number of CPU threads that PyTorch uses, inside a block or for one thread of the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import torch


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let PyTorch use `count` threads inside the block; None: do not change their number."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def set_threads_here(count: int) -> None:
    """Let PyTorch use `count` threads in the calling thread only; threads that start later use the previous number.

    `torch.set_num_threads` also changes the number for later threads, so another thread restores that number.
    """
    before = torch.get_num_threads()
    if count == before:
        return
    torch.set_num_threads(count)
    restoring = Thread(target=torch.set_num_threads, args=(before,))
    restoring.start()
    restoring.join()
