"""Save and load weights in the safetensors format; pickle is never used."""

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
    """Write named tensors to a safetensors file; copy non-contiguous and device tensors to contiguous CPU memory.

    Raises:
        OSError: the disk is full, or another write error occurs. `errno` of an error in safetensors is read from its
            message.
        SafetensorError: safetensors failed for another reason.
    """
    try:
        path.touch()
        mode = path.stat().st_mode  # safetensors replaces the file by one that only its owner may read
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, str(error), str(path), code if os.name == "nt" else None) from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors file.

    Raises:
        GlassError: the file is missing, truncated or not safetensors.
    """
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise GlassError(f"{path} cannot be read: {error}", "Use another checkpoint, or copy it again.") from None


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the weights of a model from a safetensors file, in place.

    Raises:
        GlassError: the file cannot be read, or names or shapes differ from the model's; the message names the first
            difference.
    """
    saved = load_tensors(path)
    parameters = model.state_dict()
    for name, value in parameters.items():
        if name not in saved:
            raise GlassError(
                f"{path} has no tensor {name}",
                "The weights and config.toml belong to different models: copy both from the same run.",
            )
        if saved[name].shape != value.shape:
            raise GlassError(
                f"{name} in {path} has shape {tuple(saved[name].shape)}, but the model needs {tuple(value.shape)}",
                "The weights and config.toml belong to different models: copy both from the same run.",
            )
    extra = sorted(saved.keys() - parameters.keys())
    if extra:
        raise GlassError(
            f"{path} has a tensor that the model lacks: {extra[0]}",
            "Copy the weights and config.toml from the same run.",
        )
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(saved[name])
