"""Where the model runs, and in which precision its matrix products are made."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from glassformer.errors import GlassError


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


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """float32 or bfloat16; `auto`: bfloat16 on GPUs that compute in it, float32 elsewhere."""
    if name == "bf16":
        return torch.bfloat16
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if name == "auto" and fast else torch.float32


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether this is a processor with instructions for products of bfloat16, which are twice as fast or more."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # torch has no public names for these
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in names)


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """A context in which matrix products use `dtype`; weights, norms and losses stay float32."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given, so that clocks are true."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
