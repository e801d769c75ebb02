"""Hooks that read values from forward passes, for recordings, traces, ablations and the views of the web page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from glassformer.model.thread_hooks import register

Key = TypeVar("Key")
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


@dataclass(frozen=True)
class Tap:
    """Point of a model at which a value can be read.

    Attributes:
        module: a module of the model.
        side: the value to read: "output", "input" (first argument), or "arguments" (all, as `Arguments`).
    """

    module: nn.Module
    side: Literal["output", "input", "arguments"] = "output"

    def register(self, callback: Callable[[Any], None]) -> RemovableHandle:
        """Register a hook that calls `callback` with the value at each call by this thread; return its handle."""

        def output_hook(module: nn.Module, args: tuple[Any, ...], value: Any) -> None:
            callback(value)

        def input_hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            callback(args[0])

        def arguments_hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            callback((args, kwargs))

        if self.side == "output":
            return register(self.module.register_forward_hook, output_hook)
        if self.side == "input":
            return register(self.module.register_forward_pre_hook, input_hook)
        return register(self.module.register_forward_pre_hook, arguments_hook, with_kwargs=True)


@contextmanager
def tapped(taps: Mapping[Key, Tap], callback: Callable[[Key, Any], None]) -> Iterator[None]:
    """Call `callback(key, value)` each time a forward pass reaches a tap, until the context ends.

    Only forward passes of the calling thread count. The hooks are removed when the context ends, normally or with an
    exception. The values are the model's tensors, not
    copies: copy a tensor before you modify it, or to keep it after the pass.
    """
    with ExitStack() as handles:
        for key, tap in taps.items():
            handles.callback(tap.register(partial(callback, key)).remove)
        yield


@contextmanager
def last_values(taps: Mapping[Key, Tap]) -> Iterator[dict[Key, Tensor]]:
    """Yield a dict with the value at each tap in the last forward pass inside the context."""
    values: dict[Key, Tensor] = {}
    with tapped(taps, values.__setitem__):
        yield values
