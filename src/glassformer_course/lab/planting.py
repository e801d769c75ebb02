"""Plant a bug: replace attributes of the library temporarily, and always restore them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes of modules or classes inside the context, and restore them at the end, even after errors.

    Args:
        changes: (owner, name, new value); the owner must define the name itself, not inherit it.

    Raises:
        KeyError: an owner does not define the name, because the library has changed; no attribute stays replaced.
    """
    originals: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, new in changes:
            originals.append((owner, name, vars(owner)[name]))  # vars, not getattr: restores class methods unbound
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in reversed(originals):
            setattr(owner, name, old)


@contextmanager
def attention_with(mathematics: Any) -> Iterator[None]:
    """Compute attention explicitly instead of with a fused kernel, with `mathematics` in place of the module `math`."""
    from glassformer.model import attention

    original_attend = attention.attend

    def attend(
        q: Any,
        k: Any,
        v: Any,
        mask: Any,
        dropout: float = 0.0,
        explicit: bool = False,
        hooks: Any = attention.NO_HOOKS,
        generator: Any = None,
    ) -> tuple[Any, Any]:
        out, weights = original_attend(q, k, v, mask, dropout, True, hooks, generator)  # (B, H, T, K), (B, H, T, S)
        return out, weights if explicit else None

    with replaced((attention, "math", mathematics), (attention, "attend", attend)):
        yield


@contextmanager
def attention_is(attend: Callable[..., Any]) -> Iterator[None]:
    """Replace `glassformer.model.attention.attend` with another function."""
    from glassformer.model import attention

    with replaced((attention, "attend", attend)):
        yield
