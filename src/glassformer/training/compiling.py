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
    """Return the loss compiled by `torch.compile`; the first call takes half a minute or more.

    Dropout uses other random numbers than without compilation, from the same seeds. If all batches have the same shape,
    resumed runs give the same results as uninterrupted ones; with several shapes, kernels depend on their order.
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
    """Return the path of the C++ compiler named by the variable CXX, or of a common one; None if there is none."""
    names = [name for name in (os.environ.get("CXX"), *COMPILERS) if name]
    return next((path for name in names if (path := shutil.which(name))), None)
