"""Sandbox for an answer: a separate process with limits on time, memory and output, and without ctypes or network.

In this process, Python's audit hooks refuse other files, processes and the network (`worker.py`). Code that replaces
functions of Python, or changes its memory, can evade them. On Linux, the kernel enforces the same limits
(`confine.py`), if landlockpy, pyseccomp and libseccomp are installed; `missing_confinement` returns what is missing.
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
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer_course.judging import confine, worker
from glassformer_course.judging.marking import StoppedError

SECONDS = 5.0
MEGABYTES = 1024
KEPT = 2_000  # characters of printed output that are kept
LONGEST = 64 << 20  # bytes of one result
BROKEN_OFF = "the answer interfered with the messages between its process and the checker"
REPLIES: tuple[dict[str, tuple[type, ...]], ...] = (
    {"started": (bool,)},
    {"ready": (list,)},
    {"gave": (object,), "changed": (list,)},
    {"raised": (str,), "message": (str,), "line": (int, type(None))},
)
"""Replies of the worker: their keys, and the types of the values."""
START = 20.0  # seconds for Python and NumPy to start, on a busy machine
VARIABLES = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", *(["PATH"] if os.name == "nt" else []))
"""Environment variables that an answer's process gets, because Python may not start without them."""


@cache
def missing_confinement() -> GlassError | None:
    """Return why the operating system does not confine answers here and what to do, or None if it does."""
    container = "Run untrusted answers in a container or a virtual machine, or grade them on Linux."
    if sys.platform != "linux":
        return GlassError(f"glassformer confines answers only on Linux, not on {sys.platform}", container)
    try:
        import landlockpy
        import pyseccomp  # noqa: F401
    except ImportError as error:
        return GlassError(f"the package {error.name} is not installed", install_command("teaching"))
    except RuntimeError:
        return GlassError("the system library libseccomp is not installed", "On Debian: apt install libseccomp2")
    if not landlockpy.supported():
        return GlassError("this Linux kernel has no Landlock (5.13 or later, enabled at boot)", container)
    return None


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
        environment = {name: os.environ[name] for name in os.environ if name in VARIABLES or "OPENBLAS" in name}
        environment |= {"TMPDIR": self._folder.name, "TEMP": self._folder.name, "TMP": self._folder.name}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        packages = str(Path(np.__file__).parents[1])
        # -I -S: only Python's own modules; -u: keep output printed before a crash
        command = [sys.executable, "-I", "-S", "-B", "-u", "-X", "utf8", "-W", "ignore", worker.__file__, packages]
        if missing_confinement() is None:
            command = [sys.executable, "-P", "-B", confine.__file__, self._folder.name, packages, *command]
        self._process = subprocess.Popen(
            command,
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
            except Exception as error:  # an answer that writes to the pipe can cause any error of NumPy
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
        except (ValueError, RecursionError) as error:
            raise StoppedError(BROKEN_OFF) from error
        if not _is_reply(reply):  # the answer could write to this pipe too
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
        if not self._started:
            reason = "".join(self.printed.splitlines()[-1:])
            return f"Python did not start for the answer: {reason or f'exit code {code}'}"
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


def _is_reply(reply: Any) -> bool:
    """Return whether a message is one that `worker.py` writes."""
    return isinstance(reply, dict) and any(
        reply.keys() == kinds.keys() and all(isinstance(reply[key], types) for key, types in kinds.items())
        for kinds in REPLIES
    )
