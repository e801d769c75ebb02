"""Planting a bug: something of the library is replaced for a while, and put back whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Put others in the places of what modules or classes have; at the end, also on errors, all is as before.

    Args:
        changes: (owner, name, new): the owner itself has that name, not a class above it.

    Raises:
        KeyError: an owner has no such name: the library has changed, and the bug is not planted.
    """
    before: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, new in changes:
            before.append((owner, name, vars(owner)[name]))  # as it lies there: also class methods are put back whole
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in reversed(before):
            setattr(owner, name, old)


@contextmanager
def attention_with(mathematics: Any) -> Iterator[None]:
    """Every attention takes the steps that a fused kernel hides, with this in the place of the module `math`."""
    from glassformer.model import attention

    own = attention.attend

    def attend(
        q: Any, k: Any, v: Any, mask: Any, dropout: float = 0.0, explicit: bool = False, hooks: Any = attention.NO_HOOKS
    ) -> tuple[Any, Any]:
        out, weights = own(q, k, v, mask, dropout, explicit=True, hooks=hooks)  # (B, H, T, K), (B, H, T, S)
        return out, weights if explicit else None

    with replaced((attention, "math", mathematics), (attention, "attend", attend)):
        yield


@contextmanager
def attention_is(attend: Callable[..., Any]) -> Iterator[None]:
    """Every attention computes this in the place of `glassformer.model.attention.attend`."""
    from glassformer.model import attention

    with replaced((attention, "attend", attend)):
        yield
