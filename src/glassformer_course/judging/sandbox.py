"""Sandbox for an answer: a separate process with limits on time, memory and output.

It limits the effects of accidents: endless loops, excessive memory use, `sys.exit`, floods of output, and access to
files and processes. It is not a security boundary: run code from strangers as another user of the machine, or in a
container.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from glassformer_course.judging import worker
from glassformer_course.judging.marking import StoppedError

SECONDS = 5.0
MEGABYTES = 1024
KEPT = 2_000  # characters of printed output that are kept
LONGEST = 64 << 20  # bytes of one result
BROKEN_OFF = "the answer interfered with the messages between its process and the checker"
REPLIES = ({"started"}, {"ready"}, {"gave", "changed"}, {"raised", "message", "line"})
START = 20.0  # seconds for Python and NumPy to start, on a busy machine


class Sandbox:
    """Process that runs a source and calls its functions, until it is closed or exceeds a limit.

    Args:
        source: Python source of the answer.
        seconds: time limit for loading the source and for all calls together, after NumPy has been imported.
        megabytes: memory limit; on Linux, the memory of Python and NumPy does not count; on macOS, it counts; on
            Windows, there is no limit.
    """

    def __init__(self, source: str, seconds: float = SECONDS, megabytes: int = MEGABYTES) -> None:
        self.source = source
        self.seconds = seconds
        self.megabytes = megabytes
        self._printed = [b""]  # output while loading, then of each call
        self._calls = 0
        self._selected_call = -1
        self._started = False
        self._timed_out = False

    def __enter__(self) -> Sandbox:
        self._folder = tempfile.TemporaryDirectory(prefix="glass-answer-", ignore_cleanup_errors=True)
        temporary_folders = {"TMPDIR": self._folder.name, "TEMP": self._folder.name, "TMP": self._folder.name}
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = {**os.environ, **temporary_folders, **threads}
        self._process = subprocess.Popen(
            # -P: do not import modules from the worker's folder; -u: keep output printed before a crash
            [sys.executable, "-P", "-B", "-u", "-X", "utf8", "-W", "ignore", str(Path(worker.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._folder.name,
            env=environment,
            start_new_session=os.name != "nt",
        )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        self._start_timer(START)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._kill()
        self._process.wait()
        self._reader.join(timeout=1)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._folder.cleanup()

    @property
    def printed(self) -> str:
        """Output of loading the answer and of one call (the selected call, else the last), cut to `KEPT` characters."""
        loading, *calls = self._printed
        output = loading + (calls[min(self._selected_call, len(calls) - 1)] if calls else b"")
        return output.decode("utf-8", errors="replace")[:KEPT]

    def select_last_call(self) -> None:
        """Select the output of the last call for `printed`."""
        self._selected_call = self._calls - 1

    def load(self) -> dict[str, Any]:
        """Run the source and return {"ready": names of its callables}, or {"raised", "message", "line"}.

        Raises:
            StoppedError: the process was stopped, or exited.
        """
        self._read_reply()  # Python and NumPy have started
        self._started = True
        self._timer.cancel()
        self._start_timer(self.seconds)
        return self._exchange({"source": self.source, "megabytes": self.megabytes, "seconds": self.seconds})

    def call(self, name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function in the process and return the reply of `worker.call_function`.

        Raises:
            StoppedError: the process was stopped, or exited.
        """
        self._calls += 1
        encoded = {"arguments": worker.encode(list(arguments)), "named": worker.encode(dict(keywords))}
        reply = self._exchange({"call": name, **encoded})
        if "gave" in reply:
            try:
                reply["gave"] = worker.decode(reply["gave"])
            except (ValueError, TypeError, KeyError) as error:
                raise StoppedError(BROKEN_OFF) from error
        elif "raised" not in reply:
            raise StoppedError(BROKEN_OFF)
        return reply

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(OSError):  # if the process has ended, `_read_reply` finds no line
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        return self._read_reply()

    def _read_reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline(LONGEST)
        if not line.endswith(b"\n"):
            raise StoppedError(self._stop_reason(too_long=len(line) >= LONGEST))
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise StoppedError(BROKEN_OFF) from error
        if not isinstance(reply, dict) or reply.keys() not in REPLIES:  # the answer could write to this pipe too
            raise StoppedError(BROKEN_OFF)
        return reply

    def _start_timer(self, seconds: float) -> None:
        self._time_limit = seconds
        self._timer = threading.Timer(seconds, self._on_timeout)
        self._timer.daemon = True
        self._timer.start()

    def _stop_reason(self, too_long: bool) -> str:
        if not too_long:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1)  # the process may be about to exit
        ended = self._process.poll() is not None
        self._kill()
        code = self._process.wait()
        cpu = -int(getattr(signal, "SIGXCPU", 0))
        if self._timed_out or (cpu and code == cpu):
            limit = "1 second" if self._time_limit == 1 else f"{self._time_limit:g} seconds"
            if not self._started:
                return f"Python and NumPy did not start within {limit}; try again when the computer is less busy"
            return f"the answer did not finish within {limit}; look for an endless loop"
        if too_long:
            return f"a result is larger than {LONGEST >> 20} MB"
        if not ended:
            return BROKEN_OFF
        if code == worker.OUT_OF_MEMORY:
            return f"the answer needed more than {self.megabytes:,} MB of memory"
        if code == -int(getattr(signal, "SIGKILL", 0)):
            return "the answer's process was killed, probably because memory ran out"
        with suppress(ValueError):
            return f"the answer's process was killed by {signal.Signals(-code).name}"
        return f"the answer's process exited with code {code}"

    def _on_timeout(self) -> None:
        self._timed_out = True
        self._kill()

    def _kill(self) -> None:
        """Kill the process and, except on Windows, its child processes."""
        with suppress(OSError):
            if os.name == "nt":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _read_output(self) -> None:
        """Read all printed output, so that the pipe never fills, and keep the beginning of each call's output."""
        stream = self._process.stderr
        assert stream is not None
        with suppress(OSError, ValueError):
            while piece := os.read(stream.fileno(), 1 << 16):
                first, *further = piece.split(worker.CALL)
                self._printed[-1] = (self._printed[-1] + first)[: KEPT * 4]
                self._printed += [each[: KEPT * 4] for each in further]
