"""Read values out of forward passes: recordings, traces, means of heads and the page's views all use these hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Key = TypeVar("Key")
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and the named arguments of a call."""


@dataclass(frozen=True)
class Tap:
    """A point of a model at which a value can be read.

    Attributes:
        module: any module of the model.
        side: its "output", its first argument ("input"), or all "arguments": positional and named ones, as `Arguments`.
    """

    module: nn.Module
    side: Literal["output", "input", "arguments"] = "output"

    def register(self, take: Callable[[Any], None]) -> RemovableHandle:
        """Call `take` with the value at each call of the module, until the handle is removed."""

        def output(module: nn.Module, args: tuple[Any, ...], value: Any) -> None:
            take(value)

        def first_argument(module: nn.Module, args: tuple[Any, ...]) -> None:
            take(args[0])

        def arguments(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            take((args, named))

        if self.side == "output":
            return self.module.register_forward_hook(output)
        if self.side == "input":
            return self.module.register_forward_pre_hook(first_argument)
        return self.module.register_forward_pre_hook(arguments, with_kwargs=True)


@contextmanager
def tapped(taps: Mapping[Key, Tap], take: Callable[[Key, Any], None]) -> Iterator[None]:
    """Call `take(key, value)` for each value that forward passes inside have at these points.

    Afterwards, also after an exception, no hook is left. The values are the model's own tensors: copy them to keep
    them beyond the pass or to write to them.
    """
    with ExitStack() as handles:
        for key, tap in taps.items():
            handles.callback(tap.register(partial(take, key)).remove)
        yield


@contextmanager
def last_values(taps: Mapping[Key, Tap]) -> Iterator[dict[Key, Tensor]]:
    """Yield a table that holds the value of the last forward pass at each point."""
    seen: dict[Key, Tensor] = {}
    with tapped(taps, seen.__setitem__):
        yield seen
