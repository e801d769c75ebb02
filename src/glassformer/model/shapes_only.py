"""Models that have shapes and no numbers: to count what a model would need, before there is memory for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def shapes_only() -> Iterator[None]:
    """Modules that are made inside take no memory: their tensors are on torch's meta device.

    Nothing is drawn for them either. To draw numbers that are never there, torch would load its compiler: 70 MiB of
    modules, which would then stand in the way of whoever measures the memory of this process.
    """
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """The functions of `torch.nn.init` give their tensor back as it is."""

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
