"""Measure how long training steps take."""

from __future__ import annotations

import time

import torch

from glassformer.model.device import synchronize
from glassformer.training.parallel.processes import Processes


class Stopwatch:
    """Measures the seconds of training steps.

    Args:
        device: where the steps run; it may still be computing when Python goes on.
        processes: the processes that train the run together.
    """

    def __init__(self, device: torch.device, processes: Processes) -> None:
        self.device = device
        self.processes = processes
        self._started = time.perf_counter()

    def start(self) -> None:
        """Measure from now on."""
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Wait for the device, and return the seconds since `start`, of the slowest process."""
        synchronize(self.device)
        return self.processes.all_reduce_max(time.perf_counter() - self._started)
