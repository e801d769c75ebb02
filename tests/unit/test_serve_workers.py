"""The threads of the server: requests that wait for one run leave the others free, and shortages are reported."""

from __future__ import annotations

import threading

import anyio
import pytest

from glassformer.app.server.request_errors import MEMORY_REMEDY, RefusedRequestError, status_of
from glassformer.app.server.workers import Workers
from glassformer.base.errors import ShortMemoryError, convert_memory_errors


def test_a_run_that_is_held_up_leaves_the_threads_to_others() -> None:
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


def test_a_queue_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_memory_that_is_short_is_no_fault_of_the_server() -> None:
    with pytest.raises(ShortMemoryError, match="not enough memory") as refused, convert_memory_errors(MEMORY_REMEDY):
        raise MemoryError
    assert status_of(refused.value) == 503
    assert "train." not in refused.value.remedy


def test_nobody_waits_for_a_view_when_the_server_stops() -> None:
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
