"""Running the real command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def environment() -> dict[str, str]:
    """One thread, and no colours or widths of the terminal that runs the tests."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONUTF8": "1", "COLUMNS": "120"}


def glass(*arguments: str | Path, folder: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `glass` in a folder to its end."""
    return subprocess.run(
        [sys.executable, "-m", "glassformer", *map(str, arguments)],
        cwd=folder, env=environment(), input=text, capture_output=True, text=True, encoding="utf-8", timeout=280,
        check=False,
    )  # fmt: skip


def start(*arguments: str | Path, folder: Path) -> subprocess.Popen[bytes]:
    """Run `glass` in a folder without waiting for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "glassformer", *map(str, arguments)],
        cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
