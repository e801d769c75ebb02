"""Run Python in forked processes that have PyTorch loaded already, which saves two seconds of loading in each of them.

The first request starts a server process, which imports the packages in `LOADED` (none of them the project's) and then
only forks. Each forked process has a separate working directory, environment, set of streams and set of imported
project modules. Signals to a process, and its end, affect no other process. Only the start of Python and the imports in
`LOADED` are shared. On systems other than Linux, `tests.journey.commands` starts Python as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOADED = ("torch", "pydantic", "safetensors.torch", "tokenizers")


@functools.cache
def server() -> socket.socket:
    """Start the server at the first call, and return the socket for requests; the server ends with this process."""
    ours, its = socket.socketpair()
    with its:
        subprocess.Popen([sys.executable, __file__, str(its.fileno())], pass_fds=[its.fileno()])
    return ours


@contextlib.contextmanager
def holding(text: str) -> Iterator[int]:
    """Write a text to a temporary file, and yield its descriptor for reading."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8"))
        file.seek(0)
        yield file.fileno()


class Forked:
    """A forked process, with the methods of `subprocess.Popen` that the tests use.

    Args:
        words: arguments of `python`: -m MODULE or -c CODE, and further arguments.
        folder: working directory.
        environment: all environment variables.
        text: standard input.
    """

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str], text: str = "") -> None:
        self.args = words
        self.returncode: int | None = None
        asked = {"words": words, "folder": str(folder), "environment": environment}
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by `communicate`
        output, written = os.pipe()
        self._said, says = os.pipe()
        with holding(json.dumps(asked)) as request, holding(text) as given:
            socket.send_fds(server(), [b"."], [request, given, written, self._errors.fileno(), says])
        os.close(written)
        os.close(says)
        self.stdout = open(output, encoding="utf-8")  # noqa: PTH123, SIM115 - closed by `communicate`
        self.pid = int(os.read(self._said, 20))

    def poll(self) -> int | None:
        """Return the exit code, encoded as in `subprocess`, or None while the process runs."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end, at most `timeout` seconds if given, and return the same as `poll`."""
        if self.returncode is None and select.select([self._said], [], [], timeout)[0]:
            self.returncode = int(os.read(self._said, 20))
            os.close(self._said)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self) -> tuple[str, str]:
        """Wait for the end; return the standard output that was not read yet, and the standard error."""
        with self.stdout, self._errors:
            output = self.stdout.read()
            self.wait()
            self._errors.seek(0)
            return output, self._errors.read()


def serve(asked: socket.socket) -> list[int]:
    """Fork for every request; return only in the forked process, with the descriptors of the request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C must reach only the forked processes
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the children
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # shared pages stay shared, because the collector does not write to them
    while files := socket.recv_fds(asked, 1, 5)[1]:
        if os.fork() == 0:
            asked.close()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return keep(files)
        for each in files:
            os.close(each)
    raise SystemExit


def keep(files: list[int]) -> list[int]:
    """Fork again, and report the new process's id and exit code; return only in the new process."""
    *files, says = files
    if (pid := os.fork()) == 0:
        os.close(says)
        return files
    for each in (*files, 0, 1, 2):
        os.close(each)
    os.write(says, b"%d" % pid)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(says, b"%d" % ended)
    os._exit(0)


def become(files: list[int]) -> list[str]:
    """Set the streams, the working directory and the environment of the request; return the arguments of `python`."""
    request, *streams = files
    with open(request, encoding="utf-8") as file:  # noqa: PTH123
        asked = json.load(file)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.__stderr__ = sys.stderr  # type: ignore[misc]  # as in a new process
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None  # found anew, from the environment
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]  # as of -m and -c
    return list(asked["words"])


def main() -> None:
    """Run the server; in each forked process, run the requested code until it ends."""
    atexit.register(gc.freeze)  # the end of a process need not look for cycles in all of PyTorch
    kind, what, *rest = become(serve(socket.socket(fileno=int(sys.argv[1]))))
    sys.argv = [what if kind == "-m" else kind, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})


if __name__ == "__main__":
    main()
