"""Hooks that run only in the thread that registered them, so that threads can inspect and patch one shared model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.hooks import RemovableHandle

REGISTERING = threading.Lock()
"""Lock of the counter from which torch numbers the hooks of all modules: two hooks with one number would be one."""


class _HookThread(threading.local):
    """Identifier of the thread whose hooks run in the current thread: itself, except inside `hooks_of_thread`."""

    def __init__(self) -> None:
        self.identifier = threading.get_ident()


_current = _HookThread()


class ThreadHook:
    """Hook of a module that does nothing in other threads than the one that creates it."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook
        self.thread = _current.identifier

    @property
    def applies(self) -> bool:
        """Whether the hook runs in the calling thread."""
        return self.thread == _current.identifier

    def __call__(self, *arguments: Any) -> Any:
        return self.hook(*arguments) if self.applies else None


def register(method: Callable[..., RemovableHandle], hook: Callable[..., Any], **options: Any) -> RemovableHandle:
    """Register a hook for the calling thread with a method such as `module.register_forward_hook`."""
    with REGISTERING:
        return method(ThreadHook(hook), **options)


def applies_here(*hook_dicts: Mapping[int, Callable[..., Any]]) -> bool:
    """Return whether a hook in these dictionaries runs in the calling thread; hooks of other libraries always run."""
    return any(
        not isinstance(hook, ThreadHook) or hook.applies
        for hooks in hook_dicts
        if hooks
        for hook in tuple(hooks.values())  # a copy, because another thread may register a hook
    )


def thread_of_hooks() -> int:
    """Return the identifier of the thread whose hooks run in the calling thread."""
    return _current.identifier


@contextmanager
def hooks_of_thread(identifier: int) -> Iterator[None]:
    """Run the hooks of another thread inside the context, for work that is done on its behalf.

    On a GPU, torch recomputes a block (`training.recomputing`) in a thread of its own.
    """
    previous = _current.identifier
    _current.identifier = identifier
    try:
        yield
    finally:
        _current.identifier = previous
