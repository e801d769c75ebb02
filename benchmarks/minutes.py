"""Time limit of `glass train TEXT --minutes M`: how well a run respects it, on an idle machine and on a busy one.

On the busy machine, one process per core computes all the time. Each run is a command in a separate folder; its wall
time is that of the whole process. The ratio is wall time / M; the goal is at most 1.2 for one minute and 1.1 for two.
The loss is the validation loss.

    python benchmarks/minutes.py ~/texts/shakespeare/input.txt --minutes 1 2
    python benchmarks/minutes.py book.txt --minutes 1 --load busy --json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isa import add_isa, restrict

LOADS = ("idle", "busy")


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep `number` cores busy with one process each, until the `with` block ends."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def trained(text: Path, minutes: float, own: list[str]) -> dict[str, Any]:
    """Train a run, and return its results with its wall time."""
    command = [sys.executable, "-m", "glassformer", "train", str(text), "--minutes", str(minutes), "--json", *own]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = subprocess.run([*command, "--out", "run"], cwd=folder, capture_output=True, text=True, check=False)
        wall = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        said: dict[str, Any] = json.loads(done.stdout)
        manifest = json.loads((Path(folder) / "run" / "manifest.json").read_text(encoding="utf-8"))
    leg = manifest["legs"][-1]
    return {
        "minutes": minutes,
        "wall_seconds": wall,
        "ratio": wall / (60 * minutes),
        "loss": said["loss"],
        "validation_share": said["validation_share"],
        "steps": said["steps_done"],
        "train_seconds": said["train_seconds"],
        "threads": leg["threads"],
        "threads_tried": leg.get("threads_tried"),
    }


def row(found: dict[str, Any]) -> str:
    """Return a line of the table."""
    return (
        f"{found['minutes']:>7g}  {found['load']:<5} {found['ratio']:>6.3f} {found['wall_seconds']:>7.1f} "
        f"{found['train_seconds']:>9.1f} {found['steps']:>7,} {found['threads']:>8} {found['loss']:>7.4f} "
        f"{found['validation_share']:>6.1%}"
    )


def main() -> int:
    """Run each number of minutes under each load, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="the training text")
    parser.add_argument("--minutes", type=float, nargs="+", default=[1.0, 2.0], help="default: 1 2")
    parser.add_argument("--load", choices=LOADS, nargs="+", default=list(LOADS), help="default: idle busy")
    parser.add_argument(
        "--own", nargs=argparse.REMAINDER, default=[], help="further arguments of glass train; must be last"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    results = []
    if not options.json:
        print("minutes  load   ratio  wall s  train s     steps  threads    loss  share")
    for minutes in options.minutes:
        for load in options.load:
            with busy_processes(cores() if load == "busy" else 0):
                before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
                found = trained(options.text.resolve(), minutes, options.own)
            results.append({"load": load, "load_average_before": before, **found})
            if not options.json:
                print(row(results[-1]), flush=True)
    if options.json:
        print(json.dumps({"cores": cores(), "runs": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
