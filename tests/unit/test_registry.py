"""The cache of a served model, and futures of background threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from glassformer.app.server import registry
from glassformer.app.server.background import in_background
from glassformer.app.server.registry import ServedModel
from glassformer.base.errors import GlassError


def made(value: str, calls: list[str]) -> Callable[[], str]:
    def make() -> str:
        calls.append(value)
        return value

    return make


def test_the_least_recently_used_results_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CACHE_BYTES", 10)
    opened = ServedModel("book", Mock())
    calls: list[str] = []
    for key in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb"):
        assert opened.cached(key, made(key, calls), len) == key
    assert calls == ["aaaa", "bbbb", "cccc", "bbbb"]


def test_a_result_larger_than_the_cache_is_given_and_evicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CACHE_BYTES", 10)
    opened = ServedModel("book", Mock())
    calls: list[str] = []
    for key in ("aaaa", "b" * 11, "b" * 11, "aaaa"):
        assert opened.cached(key, made(key, calls), len) == key
    assert calls == ["aaaa", "b" * 11, "b" * 11]


def test_a_future_gives_the_result_or_raises_the_error_of_its_thread() -> None:
    def fail() -> None:
        raise GlassError("it broke", "Mend it.")

    assert in_background(lambda: threading.current_thread().daemon).result(20) is True
    with pytest.raises(GlassError, match="it broke"):
        in_background(fail).result(20)
