"""Read the JSON files and safetensors of a Hugging Face folder, and check them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from glassformer.base.errors import GlassError, nearest_file

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")
FLOATS = ("F64", "F32", "F16", "BF16")
"""Allowed dtypes of weights, by their names in safetensors files."""
INDEX = "model.safetensors.index.json"
CONVERT = "Convert it with transformers: AutoModel….from_pretrained(PATH).save_pretrained(NEW)."


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises:
        GlassError: the file is missing, cannot be read, is not JSON, or does not contain an object.
    """
    try:
        values = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, f"Give a folder that has {what}.")) from None
    except OSError as error:
        raise GlassError(
            f"{path} cannot be read: {error.strerror}", "Check its permissions, or give another folder."
        ) from None
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not valid JSON: {error}", "Copy it again from the model's source.") from None
    if not isinstance(values, dict):
        raise GlassError(f"{path} is not a JSON object", "Copy it again from the model's source.")
    return values


@dataclass(frozen=True)
class TensorFiles:
    """Files, shapes and dtypes of the tensors in a folder; values are not loaded yet."""

    folder: Path
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]

    def load(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Load tensors; `names` maps each name in the result to the name in the files.

        Raises:
            GlassError: a tensor has values that are not finite, or a file cannot be read.
        """
        loaded: dict[str, Tensor] = {}
        for path in dict.fromkeys(self.files[name] for name in names.values()):
            with _open_safetensors(path) as file:
                for result_name, name in names.items():
                    if self.files[name] == path:
                        loaded[result_name] = file.get_tensor(name)
        for result_name, tensor in loaded.items():
            if not bool(torch.isfinite(tensor.float()).all()):
                raise GlassError(
                    f"{names[result_name]} in {self.files[names[result_name]]} has values that are not finite",
                    "The weights are damaged: copy them again from the model's source.",
                )
        return loaded


def _open_safetensors(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise GlassError(
            f"{path} is missing, but the index names it", "Copy it again from the model's source."
        ) from None
    except (SafetensorError, OSError, ValueError) as error:
        raise GlassError(
            f"{path} is not a complete safetensors file: {error}", "Copy it again from the model's source."
        ) from None


def find_tensors(folder: Path) -> TensorFiles:
    """Find the tensors of a folder: in `model.safetensors`, or in the files that the index names.

    Raises:
        GlassError: the folder has only pickles or no weights; a file is missing or is not a complete safetensors file;
            or the index is malformed, names a file outside the folder, or assigns a tensor to a file that lacks it.
    """
    single = folder / "model.safetensors"
    index = folder / INDEX
    if single.exists():
        return _tensor_files(folder, [single], None)
    if index.exists():
        weight_map = read_json(index, "a model").get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise GlassError(f"{index} has no valid weight_map", "Copy it again from the model's source.")
        outside = [name for name in weight_map.values() if Path(name).name != name]
        if outside:
            raise GlassError(
                f"{index} names a file outside its folder or in a subfolder: {outside[0]}",
                "Give a model folder whose weight files are next to the index.",
            )
        return _tensor_files(folder, [folder / name for name in dict.fromkeys(weight_map.values())], weight_map)
    pickles = [path.name for pattern in PICKLES for path in sorted(folder.glob(pattern))]
    if pickles:
        raise GlassError(
            f"{folder} has its weights in {pickles[0]}, a format that can execute code when it is loaded; "
            "it is not opened",
            CONVERT,
        )
    raise GlassError(f"{folder} has no model.safetensors", nearest_file(single, "Give the folder of a model."))


def _tensor_files(folder: Path, paths: list[Path], weight_map: dict[str, str] | None) -> TensorFiles:
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, str] = {}
    for path in paths:
        with _open_safetensors(path) as file:
            for name in file.keys():  # noqa: SIM118
                tensor_slice = file.get_slice(name)
                files[name] = path
                shapes[name] = tuple(tensor_slice.get_shape())
                dtypes[name] = tensor_slice.get_dtype()
    for name, file_name in (weight_map or {}).items():
        if files.get(name) != folder / file_name:
            raise GlassError(
                f"{folder / file_name} lacks the tensor {name}, which the index says it has", "Copy all files again."
            )
    return TensorFiles(folder, files, shapes, dtypes)
