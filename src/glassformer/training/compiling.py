"""`torch.compile` for the forward and backward passes of training: when it repays itself, and what it needs."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from glassformer.config import EXAMPLES, TrainConfig
from glassformer.errors import GlassError
from glassformer.training.parallel.processes import Forward

COMPILERS = ("c++", "g++", "clang++", "cl")
LONG_STEPS, LONG_MINUTES = 2000, 10.0
"""From so long a run on, the minute that compiling takes on a GPU repays itself if steps get a tenth faster."""


def compiled(forward: Forward, config: TrainConfig, device: torch.device) -> Forward:
    """The same function, compiled where the settings ask for it.

    It is decided by the settings and the kind of device alone, never by a clock: a run that is resumed computes what
    it would have computed. Dropout draws other random numbers than without, from the same seeds.

    Raises:
        GlassError: there is no compiler for this device.
    """
    if not compiles(config, device):
        return forward
    if not _has_compiler(device):
        raise GlassError(
            f"train.compile = on, but there is no compiler for {device.type} on this machine",
            "Install one (g++ or clang++ for a processor, triton for a GPU), or set train.compile = off.",
        )
    return torch.compile(forward)


def compiles(config: TrainConfig, device: torch.device) -> bool:
    """Whether this run is compiled.

    `auto`: on a GPU, where the run is long and all its batches have one shape. On a processor most of a step is
    products of matrices, that nothing makes faster: there a compiled step takes as long (`docs/benchmarks.md`).
    """
    if config.compile != "auto":
        return config.compile == "on"
    long = (config.steps or 0) >= LONG_STEPS or (config.minutes or 0) >= LONG_MINUTES
    return device.type == "cuda" and long and config.task not in EXAMPLES and _has_compiler(device)


def find_compiler() -> str | None:
    """The C++ compiler that the environment names in CXX, or one of the usual names."""
    names = [name for name in (os.environ.get("CXX"), *COMPILERS) if name]
    return next((path for name in names if (path := shutil.which(name))), None)


def _has_compiler(device: torch.device) -> bool:
    return find_spec("triton") is not None if device.type == "cuda" else find_compiler() is not None
