"""Run the real command line, in a separate process or in this one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

from glassformer.app.cli.main import main
from tests.journey.forked import Forked, holding

Running = Forked | subprocess.Popen[str]


def environment() -> dict[str, str]:
    """Return the environment of commands: one thread, no colours, and a width that does not depend on the terminal."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONUTF8": "1", "COLUMNS": "120"}


def begin(*words: str, folder: Path, text: str = "") -> Running:
    """Start Python in a separate process, with `-m MODULE …` or `-c CODE`; `text` is its standard input."""
    if sys.platform == "linux":
        return Forked(list(words), folder, environment(), text)
    with holding(text) as given:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment(),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )


def ended(process: Running) -> subprocess.CompletedProcess[str]:
    """Wait until a process ends, and return its result."""
    output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.wait(), output, errors)


def start(*arguments: str | Path, folder: Path) -> Running:
    """Start `glass` in a folder without waiting for its end."""
    return begin("-m", "glassformer", *map(str, arguments), folder=folder)


def glass(*arguments: str | Path, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run `glass` in a folder in a separate process, and return its result."""
    return ended(begin("-m", "glassformer", *map(str, arguments), folder=folder, text=text))


def here(*arguments: str | Path, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run `glass` in a folder within this process, which saves the time to load PyTorch, and return its result."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    words = list(map(str, arguments))
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode("utf-8")), encoding="utf-8")
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as ended:  # --help
        code = int(ended.code or 0)
    finally:
        sys.stdin = before
    shown = []
    for stream in (out, err):
        stream.flush()
        shown.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, code, *shown)
