"""Weights in few bytes, and back: whole numbers of 8 bits with a scale for each row, float16, or float32 as they are.

Only matrices are rounded. Gains, biases and the tables of places are small, and much depends on each of their numbers:
they stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Bits = Literal[8, 16, 32]
Floats = npt.NDArray[np.float32]
LEVELS = 127
"""The largest whole number of 8 bits; its negative is the smallest that is used."""
ALIGNED = 4
"""Every tensor begins at a multiple of so many bytes."""


@dataclass(frozen=True)
class Stored:
    """One tensor among the bytes.

    Attributes:
        name: as in the model's `state_dict`.
        shape: of the tensor.
        kind: "int8": `shape[0]` scales, float32, then the whole numbers; "float16"; "float32". Little-endian.
        offset: of its first byte.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int

    def facts(self) -> dict[str, Any]:
        """For the header of the file."""
        return {"name": self.name, "shape": list(self.shape), "kind": self.kind, "offset": self.offset}


def pack(tensors: Mapping[str, Floats], bits: Bits) -> tuple[list[Stored], bytes]:
    """The tensors one after the other, and where each stands."""
    stored = list[Stored]()
    data = bytearray()
    for name, tensor in tensors.items():
        kind = kind_of(name, tensor, bits)
        stored.append(Stored(name, tensor.shape, kind, len(data)))
        data += _bytes(tensor, kind)
        data += b"\0" * (-len(data) % ALIGNED)
    return stored, bytes(data)


def unpack(stored: Sequence[Stored], data: bytes) -> dict[str, Floats]:
    """The tensors again, rounded as they are in the bytes."""
    return {each.name: _read(each, data) for each in stored}


def kind_of(name: str, tensor: Floats, bits: Bits) -> str:
    """Return the storage type of a tensor: that of `bits` for matrices, float32 for vectors and positions."""
    small = tensor.ndim == 2 and "positions" not in name
    return {8: "int8", 16: "float16", 32: "float32"}[bits] if small else "float32"


def _bytes(tensor: Floats, kind: str) -> bytes:
    if kind != "int8":
        return tensor.astype({"float16": "<f2", "float32": "<f4"}[kind]).tobytes()
    scales = (np.abs(tensor).max(axis=1, initial=0.0) / LEVELS).astype("<f4")  # (rows)
    divisors = np.where(scales > 0, scales, np.float32(1))[:, None]  # (rows, 1)
    numbers = np.clip(np.rint(tensor / divisors), -LEVELS, LEVELS).astype(np.int8)  # (rows, columns)
    return bytes(scales.tobytes() + numbers.tobytes())


def _read(stored: Stored, data: bytes) -> Floats:
    count = int(np.prod(stored.shape))
    if stored.kind != "int8":
        kind = {"float16": "<f2", "float32": "<f4"}[stored.kind]
        return np.frombuffer(data, kind, count, stored.offset).astype(np.float32).reshape(stored.shape)
    rows = stored.shape[0]
    scales = np.frombuffer(data, "<f4", rows, stored.offset)  # (rows)
    numbers = np.frombuffer(data, np.int8, count, stored.offset + 4 * rows).reshape(stored.shape)  # (rows, columns)
    return numbers.astype(np.float32) * scales.astype(np.float32)[:, None]  # (rows, columns)
