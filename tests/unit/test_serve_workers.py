"""The server's threads: requests that wait for a run do not block others; full queues and memory are reported."""

from __future__ import annotations

import threading

import anyio
import pytest

from glassformer.app.server.request_errors import MEMORY_REMEDY, RefusedRequestError, status_of
from glassformer.app.server.workers import Workers
from glassformer.base.errors import ShortMemoryError, convert_memory_errors


def test_a_blocked_run_leaves_threads_to_others() -> None:
    async def asked() -> str:
        workers = Workers(threads=2)
        go = threading.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(workers.of_run, "slow", go.wait, 30)
            await anyio.sleep(0.05)
            with anyio.fail_after(10):
                found = await workers(str, 7) + await workers.of_run("quick", str, 8)
            go.set()
        return found

    assert anyio.run(asked) == "78"


def test_the_queue_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.app.server.workers.WAITING", 2)

    async def asked() -> None:
        workers = Workers()
        go = threading.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(workers.of_run, "slow", go.wait, 30)
            await anyio.sleep(0.05)
            try:
                with pytest.raises(RefusedRequestError, match="2 requests are already waiting"):
                    await workers.of_run("slow", str)
            finally:
                go.set()

    anyio.run(asked)


def test_out_of_memory_is_not_an_internal_error() -> None:
    with pytest.raises(ShortMemoryError, match="not enough memory") as refused, convert_memory_errors(MEMORY_REMEDY):
        raise MemoryError
    assert status_of(refused.value) == 503
    assert "train." not in refused.value.remedy


def test_stopping_the_server_does_not_wait_for_views() -> None:
    go = threading.Event()
    ended = threading.Event()

    def work() -> None:
        go.wait(30)
        ended.set()

    async def stopped() -> bool:
        with anyio.move_on_after(0.05):
            await Workers().of_run("slow", work)
        waited = ended.is_set()
        go.set()
        return waited

    assert not anyio.run(stopped)
