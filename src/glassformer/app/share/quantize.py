"""Pack and unpack the weights: 8-bit integers with a scale for each row, float16, or float32.

Only matrices are rounded. Gains, biases and position tables stay float32, because they are small compared with the
matrices, and the model is sensitive to each of their values.
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
"""Largest integer of a quantized weight; the smallest is `-LEVELS`."""
ALIGNED = 4
"""Alignment of the tensors, in bytes."""


@dataclass(frozen=True)
class PackedTensor:
    """Location and storage type of one tensor in the packed bytes.

    Attributes:
        name: name in the model's `state_dict`.
        shape: shape of the tensor.
        kind: "int8" (`shape[0]` float32 scales, then the integers), "float16" or "float32"; all little-endian.
        offset: offset of the first byte.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int

    def facts(self) -> dict[str, Any]:
        """Return the header entry of the tensor."""
        return {"name": self.name, "shape": list(self.shape), "kind": self.kind, "offset": self.offset}


def pack(tensors: Mapping[str, Floats], bits: Bits) -> tuple[list[PackedTensor], bytes]:
    """Pack tensors into bytes; return the location of each tensor, and the bytes."""
    stored = list[PackedTensor]()
    data = bytearray()
    for name, tensor in tensors.items():
        kind = kind_of(name, tensor, bits)
        stored.append(PackedTensor(name, tensor.shape, kind, len(data)))
        data += _bytes(tensor, kind)
        data += b"\0" * (-len(data) % ALIGNED)
    return stored, bytes(data)


def unpack(stored: Sequence[PackedTensor], data: bytes) -> dict[str, Floats]:
    """Return the packed tensors as float32, with the rounding of their storage type."""
    return {each.name: _read(each, data) for each in stored}


def kind_of(name: str, tensor: Floats, bits: Bits) -> str:
    """Return the storage type of a tensor: float32 for vectors and position tables, otherwise chosen by `bits`."""
    is_rounded = tensor.ndim == 2 and "positions" not in name
    return {8: "int8", 16: "float16", 32: "float32"}[bits] if is_rounded else "float32"


def _bytes(tensor: Floats, kind: str) -> bytes:
    if kind != "int8":
        return tensor.astype({"float16": "<f2", "float32": "<f4"}[kind]).tobytes()
    scales = (np.abs(tensor).max(axis=1, initial=0.0) / LEVELS).astype("<f4")  # (rows)
    divisors = np.where(scales > 0, scales, np.float32(1))[:, None]  # (rows, 1)
    numbers = np.clip(np.rint(tensor / divisors), -LEVELS, LEVELS).astype(np.int8)  # (rows, columns)
    return bytes(scales.tobytes() + numbers.tobytes())


def _read(stored: PackedTensor, data: bytes) -> Floats:
    count = int(np.prod(stored.shape))
    if stored.kind != "int8":
        kind = {"float16": "<f2", "float32": "<f4"}[stored.kind]
        return np.frombuffer(data, kind, count, stored.offset).astype(np.float32).reshape(stored.shape)
    rows = stored.shape[0]
    scales = np.frombuffer(data, "<f4", rows, stored.offset)  # (rows)
    numbers = np.frombuffer(data, np.int8, count, stored.offset + 4 * rows).reshape(stored.shape)  # (rows, columns)
    return numbers.astype(np.float32) * scales.astype(np.float32)[:, None]  # (rows, columns)
