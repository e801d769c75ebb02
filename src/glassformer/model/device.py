"""Choose a device, set the precision of its matrix multiplications, and wait for its queued work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from glassformer.base.errors import GlassError


def choose_device(name: str) -> torch.device:
    """Return the device with this name; `auto` is a GPU if there is one, else the CPU.

    Raises:
        GlassError: the name is unknown, or the machine has no such device.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    available = {"cpu": True, "cuda": n_gpus > 0, "mps": torch.backends.mps.is_available()}
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in available:
        raise GlassError(f"there is no device {name!r}", "Use one of: auto, cpu, cuda, cuda:N, mps.")
    if not available[device.type] or (device.type == "cuda" and (device.index or 0) >= n_gpus):
        usable = [kind for kind in available if available[kind]]
        raise GlassError(f"this machine has no device {name}", f"Use one of: auto, {', '.join(usable)}.")
    return device


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Return a context in which matrix multiplications run in `dtype`; weights, norms and losses stay float32."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all queued work, so that timings are correct."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
