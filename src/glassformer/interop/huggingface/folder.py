"""A folder of theirs, as it is found: `config.json` and safetensors. Nothing is believed before it is checked."""

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
"""Types of numbers that a weight may have, by their name in the file."""
INDEX = "model.safetensors.index.json"
CONVERT = "Where it was made: AutoModel….from_pretrained(PATH).save_pretrained(NEW, safe_serialization=True)."


def read_json(path: Path, what: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        GlassError: there is no such file, it is not JSON, or not an object.
    """
    try:
        values = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, f"Give a folder that has {what}.")) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", f"Give a folder that has {what}.") from None
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not valid JSON: {error}", "Copy it again from where the model was made.") from None
    if not isinstance(values, dict):
        raise GlassError(f"{path} is not a table of settings", "Copy it again from where the model was made.")
    return values


@dataclass(frozen=True)
class Found:
    """Files, shapes and dtypes of the tensors in a folder; values are not loaded yet."""

    folder: Path
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]

    def load(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Tensors under the names on the left; read under those on the right.

        Raises:
            GlassError: a number in them is not finite, or the file cannot be read.
        """
        loaded: dict[str, Tensor] = {}
        for path in dict.fromkeys(self.files[name] for name in names.values()):
            with _opened(path) as file:
                for wanted, name in names.items():
                    if self.files[name] == path:
                        loaded[wanted] = file.get_tensor(name)
        for wanted, tensor in loaded.items():
            if not bool(torch.isfinite(tensor.float()).all()):
                raise GlassError(
                    f"{names[wanted]} in {self.files[names[wanted]]} holds numbers that are not finite",
                    "The weights are damaged: copy them again from where the model was made.",
                )
        return loaded


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise GlassError(f"{path} is missing, and the index names it", "Copy it from where the model lies.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise GlassError(
            f"{path} is not a whole safetensors file: {error}", "Copy it again from where the model was made."
        ) from None


def find_tensors(folder: Path) -> Found:
    """The tensors of a folder: of `model.safetensors`, or of the files that its index names.

    Raises:
        GlassError: there are only pickles, there is nothing, or a file is corrupt, truncated or of another kind.
    """
    single = folder / "model.safetensors"
    index = folder / INDEX
    if single.exists():
        return _collected(folder, [single], None)
    if index.exists():
        table = read_json(index, "a model").get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise GlassError(f"{index} has no weight_map", "Copy it again from where the model was made.")
        outside = [name for name in table.values() if Path(name).name != name]
        if outside:
            raise GlassError(f"{index} names a file outside its folder: {outside[0]}", "Give a folder that is whole.")
        return _collected(folder, [folder / name for name in dict.fromkeys(table.values())], table)
    pickles = [path.name for pattern in PICKLES for path in sorted(folder.glob(pattern))]
    if pickles:
        raise GlassError(
            f"{folder} has its weights in {pickles[0]}, which can run code when it is read; it is not opened", CONVERT
        )
    raise GlassError(f"{folder} has no model.safetensors", nearest_file(single, "Give the folder of a model."))


def _collected(folder: Path, paths: list[Path], table: dict[str, str] | None) -> Found:
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, str] = {}
    for path in paths:
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                files[name] = path
                shapes[name] = tuple(part.get_shape())
                dtypes[name] = part.get_dtype()
    for name, place in (table or {}).items():
        if files.get(name) != folder / place:
            raise GlassError(f"{folder / place} has no tensor {name}, and the index says so", "Copy all files again.")
    return Found(folder, files, shapes, dtypes)
