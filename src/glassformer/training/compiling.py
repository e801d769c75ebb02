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
    """Return the same function, compiled at its first call, which takes half a minute or more.

    Dropout draws other random numbers than without, from the same seeds. A resumed run computes what it would have
    computed where all batches have one shape; where they have many, kernels depend on which came first.
    """
    return torch.compile(loss)


def refuse_without_compiler(device: torch.device) -> None:
    """Raise a `GlassError` where nothing can be compiled for this device."""
    if not (find_spec("triton") if device.type == "cuda" else find_compiler()):
        raise GlassError(
            f"train.compile = true, but there is no compiler for {device.type} on this machine",
            "Install one (g++ or clang++ for a processor, triton for a GPU), or set train.compile = false.",
        )


def find_compiler() -> str | None:
    """The C++ compiler that the environment names in CXX, or one of the usual names."""
    names = [name for name in (os.environ.get("CXX"), *COMPILERS) if name]
    return next((path for name in names if (path := shutil.which(name))), None)
