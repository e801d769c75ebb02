"""Weights to and from safetensors: nothing is ever unpickled."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer.base.errors import GlassError


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write named tensors; views and device tensors are copied to contiguous CPU memory first.

    Raises:
        OSError: the disk is full, or refuses otherwise (safetensors has only the number of the error, in its text).
    """
    try:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path, metadata)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, str(error), str(path), code if os.name == "nt" else None) from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors.

    Raises:
        GlassError: the file is missing, truncated or not safetensors.
    """
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise GlassError(f"{path} cannot be read: {error}", "Use another checkpoint, or copy it again.") from None


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill a model.

    Raises:
        GlassError: the file holds the weights of another model; the first difference is named.
    """
    found = load_tensors(path)
    wanted = model.state_dict()
    for name, value in wanted.items():
        if name not in found:
            raise GlassError(
                f"{path} has no tensor {name}", "It belongs to another model: use the run's own config.toml."
            )
        if found[name].shape != value.shape:
            raise GlassError(
                f"{name} in {path} has shape {tuple(found[name].shape)}, the model wants {tuple(value.shape)}",
                "It belongs to another model: use the run's own config.toml.",
            )
    extra = sorted(found.keys() - wanted.keys())
    if extra:
        raise GlassError(f"{path} has a tensor that the model lacks: {extra[0]}", "It belongs to another model.")
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(found[name])
