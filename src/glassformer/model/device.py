"""Choose where the model runs, and run matrix multiplications there in a given precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from glassformer.base.errors import GlassError


def choose_device(name: str) -> torch.device:
    """The device that a setting names; `auto`: a GPU where there is one.

    Raises:
        GlassError: the machine has no such device.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise GlassError(f"there is no device {name!r}", "Use one of: auto, cpu, cuda, cuda:N, mps.") from None
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(device.type, False):
        has = [kind for kind in ("cpu", "cuda", "mps") if kind == "cpu" or (kind != device.type and there[kind])]
        raise GlassError(f"this machine has no device {name}", f"Use one of: auto, {', '.join(has)}.")
    return device


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Return a context in which matrix multiplications use `dtype`; weights, norms and losses stay float32."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given, so that clocks are true."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
