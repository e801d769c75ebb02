"""Save and load weights in the safetensors format; pickle is never used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError

OTHER_MODEL = "The weights and config.toml belong to different models: copy both from the same run."
"""Remedy if weights do not fit the settings."""


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


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a safetensors file; only the header of the file is read.

    Raises:
        GlassError: the file is missing, truncated or not safetensors.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise GlassError(f"{path} cannot be read: {error}", "Use another checkpoint, or copy it again.") from None


def check_sizes(path: Path, saved: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    """Compare the width and the numbers of layers and heads in the settings with the weights.

    Call this before a model is built: the time to build a model grows with the numbers of layers and heads, even
    without tensor data, and torch cannot describe tensors of any width. `check_shapes` then compares all shapes.

    Args:
        path: path of the weights, for the message.
        saved: shape of each tensor, as from `shapes_in`.
        config: settings of the model.

    Raises:
        GlassError: the width or the number of layers differs, or there are more heads than any tensor has rows.
    """
    stacks = {"stack": config.layers}
    if config.family == "encoder-decoder":
        stacks = {"encoder": config.encoder_layers or config.layers, "decoder": config.layers}
    for stack, layers in stacks.items():
        found = {match[1] for name in saved if (match := re.match(rf"{stack}\.blocks\.(\d+)\.", name))}
        if len(found) != layers:
            raise GlassError(f"the settings have {layers:,} layers, but {path} has {len(found):,}", OTHER_MODEL)
    width = saved.get("embedding.tokens.weight", (config.width,))[-1]
    if width != config.width:
        raise GlassError(f"the settings have width {config.width:,}, but {path} has {width:,}", OTHER_MODEL)
    rows = max((size for shape in saved.values() for size in shape), default=0)
    if config.heads > rows + len(config.removed_heads):
        raise GlassError(f"the settings have {config.heads:,} heads, more than {path} has weights for", OTHER_MODEL)


def check_shapes(path: Path, saved: Mapping[str, tuple[int, ...]], model: nn.Module) -> None:
    """Compare the names and shapes of saved tensors with those of a model.

    Args:
        path: path of the weights, for the message.
        saved: shape of each tensor, as from `shapes_in`.
        model: the model; its tensors may be on the meta device.

    Raises:
        GlassError: a name or shape differs; the message names the first difference.
    """
    parameters = model.state_dict()
    for name, value in parameters.items():
        if name not in saved:
            raise GlassError(f"{path} has no tensor {name}", OTHER_MODEL)
        if saved[name] != tuple(value.shape):
            raise GlassError(
                f"{name} in {path} has shape {saved[name]}, but the model needs {tuple(value.shape)}", OTHER_MODEL
            )
    if extra := sorted(saved.keys() - parameters.keys()):
        raise GlassError(f"{path} has a tensor that the model lacks: {extra[0]}", OTHER_MODEL)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the weights of a model from a safetensors file, in place.

    Raises:
        GlassError: the file cannot be read, or names or shapes differ from the model's; the message names the first
            difference.
    """
    saved = load_tensors(path)
    check_shapes(path, {name: tuple(value.shape) for name, value in saved.items()}, model)
    parameters = model.state_dict()
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(saved[name])
