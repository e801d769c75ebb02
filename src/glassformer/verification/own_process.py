"""Verification of a run in a separate process, because some checks change PyTorch's process-wide precision.

This command prints a line of JSON after each check, and at the end `{"report": ...}` or
`{"error": [problem, remedy]}`::

    python -m glassformer.verification.own_process RUN best auto
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.base.wording import quoted
from glassformer.runs.folder import Which


def verify_in_subprocess(
    folder: Path,
    which: Which = "best",
    device: str = "auto",
    tell: Callable[[dict[str, Any]], None] = lambda check: None,
) -> dict[str, Any]:
    """Verify a run in a separate process, which saves the report in the run folder.

    Args:
        folder: the run folder.
        which: the checkpoint to verify.
        device: the device to compare with the CPU, as in `train.device`.
        tell: function that is called with the JSON values of each result.

    Returns:
        The report as JSON values.

    Raises:
        GlassError: as in `verify_run`; or the report cannot be written, or the process ended early.
    """
    command = [sys.executable, "-m", __name__, str(folder), which, device]
    package = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "error" in message:
                raise GlassError(*message["error"])
            if "report" in message:
                return dict(message["report"])
            tell(message)
    raise GlassError(
        f"the verification of {folder} ended early with exit code {process.returncode}",
        f"Run it in a terminal to see the error: glass verify {quoted(folder)}",
    )


def main(folder: str, which: Which, device: str) -> None:
    """Verify a run, save its report, and print the results as lines of JSON."""
    from glassformer.verification.report import save, verify_run

    def send(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)

    try:
        report = verify_run(Path(folder), which, device, tell=lambda result: send(result.facts()))
        save(report)
        send({"report": report.facts()})
    except GlassError as error:
        send({"error": [error.problem, error.remedy]})


if __name__ == "__main__":
    atexit.register(gc.freeze)  # avoids the garbage collection at exit, as in the command line
    main(*sys.argv[1:])  # type: ignore[arg-type]
