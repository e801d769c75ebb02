"""Context managers for process-wide state of PyTorch: precision and random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.model.precision import bfloat16_is_faster


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Restore the state of PyTorch's random number generators (CPU and CUDA) at the end of the block."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        yield


@contextmanager
def in_float64() -> Iterator[None]:
    """Set PyTorch's default dtype to float64 inside the block, so that, for example, rotary angles are float64 too.

    The default dtype is process-wide, so no other thread may create tensors inside the block.
    """
    previous_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(previous_dtype)


def bfloat16_on_cpu() -> AbstractContextManager[object]:
    """Return a context that emulates matrix multiplications in bfloat16, on processors where these are slow.

    The rounded operands are multiplied in float32 and the result is rounded to bfloat16, as bfloat16 instructions do.
    On other processors nothing changes.
    """
    return nullcontext() if bfloat16_is_faster(torch.device("cpu")) else _ByFloat32()


class _ByFloat32(TorchDispatchMode):
    """Mode that computes matrix multiplications and attention in float32 and rounds their results to bfloat16."""

    NAMES = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")
    ATTENTION = "scaled_dot_product"

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator; multiply bfloat16 operands in float32, and round the result."""
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        has_bfloat16 = any(isinstance(each, Tensor) and each.dtype == torch.bfloat16 for each in args)
        if not has_bfloat16 or not (name in self.NAMES or self.ATTENTION in name):
            return function(*args, **kwargs)
        result = function(*(_float(each) for each in args), **{key: _float(each) for key, each in kwargs.items()})
        if isinstance(result, Tensor):
            return result.bfloat16()
        return (result[0].bfloat16(), *result[1:])  # the log-sum-exp of attention stays in float32


def _float(value: Any) -> Any:
    """Convert a bfloat16 tensor to float32, and return any other value unchanged."""
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value
