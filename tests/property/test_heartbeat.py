"""A process that no longer answers ends the others; a process that is busy, or a group that is frozen, does not."""

from __future__ import annotations

import os
import platform
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.journey.commands import Running, begin, ended

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX signals"),
]


def group(*seconds: int) -> tuple[list[Running], int]:
    """Start a process for each number of seconds for which it is busy, and wait until all beat.

    Returns:
        The processes, and the port of their store.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = Path(__file__).parents[2]
    worker = ("-m", "tests.property.heartbeat_worker")
    size = str(len(seconds))
    started = [begin(*worker, str(rank), size, str(port), str(each), folder=root) for rank, each in enumerate(seconds)]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline().strip() == "beats"
    return started, port


@pytest.mark.parametrize("frozen", [0, 2])
def test_a_frozen_process_ends_the_others(frozen: int) -> None:
    """Rank 0 has the store: if it is frozen, no beats can be read."""
    started, port = group(60, 60, 60)
    started[frozen].send_signal(signal.SIGSTOP)
    try:
        done = [ended(each) for rank, each in enumerate(started) if rank != frozen]
    finally:
        started[frozen].kill()
    assert [each.returncode for each in done] == [2, 2]
    lost = f"the store at 127.0.0.1:{port}" if frozen == 0 else f"rank 2 on {re.escape(platform.node())}"
    said = "".join(each.stderr for each in done)  # with PyTorch's warnings about closed connections
    reports = re.findall(rf"^{lost} has not answered for \d+ seconds: .* has failed\n.*--resume", said, re.MULTILINE)
    assert len(reports) == 1, said


def test_a_busy_group_that_is_frozen_for_a_while_goes_on() -> None:
    """Both the work and the break take longer than the time after which a process is lost."""
    started, _ = group(14, 14, 14)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for each in started:
            each.send_signal(number)
        time.sleep(6)
    done = [ended(each) for each in started]
    assert [each.returncode for each in done] == [0, 0, 0], done


def test_a_process_that_has_ended_its_work_is_not_lost() -> None:
    """Rank 0 works on for longer than the time after which a process is lost."""
    started, _ = group(10, 1, 1)
    done = [ended(each) for each in started]
    assert [each.returncode for each in done] == [0, 0, 0], done
