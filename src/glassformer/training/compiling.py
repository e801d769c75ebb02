"""`torch.compile` for the forward and backward passes of training."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from glassformer.base.errors import GlassError
from glassformer.training.parallel.processes import LossOfBatch

COMPILERS = ("c++", "g++", "clang++", "cl")


def compiled(loss: LossOfBatch) -> LossOfBatch:
    """Return the loss function compiled by `torch.compile`; the first call takes half a minute or more.

    With the same seeds, compiled code generates different dropout masks than uncompiled code. A resumed run equals an
    uninterrupted run if all batches have the same shape; with several shapes, the kernels depend on the order of
    shapes.
    """
    return torch.compile(loss)


def refuse_without_compiler(device: torch.device) -> None:
    """Raise a `GlassError` if there is no compiler for this device."""
    if not (find_spec("triton") if device.type == "cuda" else find_compiler()):
        raise GlassError(
            f"train.compile = true, but there is no compiler for {device.type} on this machine",
            "Install one (g++ or clang++ for a CPU, triton for a GPU), or set train.compile = false.",
        )


def find_compiler() -> str | None:
    """Return the path of the C++ compiler: `$CXX`, or else a common one; None if none is found."""
    names = [name for name in (os.environ.get("CXX"), *COMPILERS) if name]
    return next((path for name in names if (path := shutil.which(name))), None)
