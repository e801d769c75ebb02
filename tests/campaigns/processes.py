"""Run the command line in forked processes, so that PyTorch and the package are loaded only once."""

from __future__ import annotations

import gc
import importlib
import os
import re
import signal
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from tests.campaigns.stopping import Stop, install

LOADED = (
    "torch",
    "glassformer.app.cli.train",
    "glassformer.launch.start",
    "glassformer.training.parallel.shards",
    "torch.distributed.launcher.api",
)
TORCHRUN_LOG = re.compile(r"[EWI]\d{4} ")


def load() -> None:
    """Import the modules that every process needs, with one thread each; call this once, before the first process."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["NO_COLOR"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()


class Process:
    """A `glass` command in a forked process.

    Args:
        words: arguments of `glass`.
        folder: working directory.
        log: file for standard output; standard error is written to the same name with `.err` appended.
        stop: file operation before which to stop the process, or None.
        several: whether to run the command in two processes, as torchrun does.
    """

    def __init__(self, words: list[str], folder: Path, log: Path, stop: Stop | None = None, several: bool = False):
        self.log = log
        self.code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(words, folder, log, stop, several)

    def poll(self) -> int | None:
        """Return the exit code, encoded as in `subprocess`, or None while the process runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float = 120.0) -> int | None:
        """Wait until the process ends and return its exit code; return None if it still runs after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        return self.code

    def family(self) -> list[psutil.Process]:
        """Return the process and all its descendants, or an empty list if the process no longer exists."""
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        return []

    def send(self, number: int) -> None:
        """Send a signal: SIGKILL to the process and all its descendants, other signals to the process alone."""
        for each in self.family() if number == signal.SIGKILL else [psutil.Process(self.pid)]:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def said(self) -> str:
        """Return the standard output."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def complaint(self) -> str:
        """Return the standard error."""
        return Path(f"{self.log}.err").read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> list[str]:
        """Return the last two lines of standard error, excluding empty lines and log messages of torchrun."""
        lines = self.complaint().splitlines()
        return [line for line in lines if line and not TORCHRUN_LOG.match(line)][-2:]


def _become(words: list[str], folder: Path, log: Path, stop: Stop | None, several: bool) -> NoReturn:
    """Run the command in the forked process, then end the process."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _redirect(log)
        os.chdir(folder)
        code = _two_processes(words, stop) if several else _run(words, stop)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def _redirect(log: Path) -> None:
    for number, path in ((1, str(log)), (2, f"{log}.err")):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115


def _two_processes(words: list[str], stop: Stop | None) -> int:
    """Run the command in two forked processes; torchrun itself would start a new Python interpreter for each."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="fork",
    )
    try:
        elastic_launch(config, _one_of_two)(words, stop)
    except ChildFailedError as error:
        return min(abs(failure.exitcode) for failure in error.failures.values()) or 1
    return 0


def _one_of_two(words: list[str], stop: Stop | None) -> None:
    """Run the command in one of the two processes; if the command fails, exit with the same exit code."""
    if code := _run(words, None if stop is None else stop.of_rank(int(os.environ["RANK"]))):
        os._exit(code)


def _run(words: list[str], stop: Stop | None) -> int:
    """Run the command in this process, and return its exit code."""
    try:
        sys.argv = ["glass", *words]
        if stop is not None:
            install(stop)
        from glassformer.app.cli.main import main

        return main(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except KeyboardInterrupt:
        return 130
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
