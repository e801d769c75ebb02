"""What all of a process shares, changed for a while and put back: PyTorch's threads, precision and random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let PyTorch use this many threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Whatever is drawn inside, PyTorch's random numbers go on afterwards as if nothing had been."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        yield


@contextmanager
def in_float64() -> Iterator[None]:
    """Angles and slopes of positions have PyTorch's default precision, whatever that of the weights.

    It is one for the whole process, and is put back however the block ends: no other thread may make tensors meanwhile.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
