"""Create models on torch's meta device, whose tensors have no data, to count a model's size without allocating it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def shapes_only() -> Iterator[None]:
    """Create modules on torch's meta device inside the context: their tensors have shapes but no data.

    Initialization is skipped too: to sample numbers on the meta device, torch would load its compiler, 70 MiB of
    modules, which would distort later measurements of this process's memory.
    """
    with torch.device("meta"), _WithoutInitialization():
        yield


class _WithoutInitialization(TorchFunctionMode):
    """Mode in which the functions of `torch.nn.init` return their tensor unchanged."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
