"""Measure the time of training steps."""

from __future__ import annotations

import time

import torch

from glassformer.model.device import synchronize
from glassformer.training.parallel.processes import Processes


class Stopwatch:
    """Stopwatch for training steps.

    Args:
        device: device of the steps, which may run asynchronously.
        processes: processes that train the run together.
    """

    def __init__(self, device: torch.device, processes: Processes) -> None:
        self.device = device
        self.processes = processes
        self._started = time.perf_counter()

    def start(self) -> None:
        """Begin a step: `seconds` counts from now."""
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Wait for the device, and return the seconds since `start` in the slowest process."""
        synchronize(self.device)
        return self.processes.all_reduce_max(time.perf_counter() - self._started)
