"""Run a grid in its folder: start or resume it, train it with parallel processes, and read the results.

::

    grid.json           all cells with all their settings
    runs/CELL-seed-N/   the run folder of each run; if its model lacks a component, only experiments can open it
    results/*.json      result of each run
    worker.log          standard error of the worker processes
    report.md  report.html  curves.svg  bars.svg
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from typing import Any, TextIO

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors, no_empty_folders
from glassformer.base.locks import folder_lock
from glassformer.base.sealed import read_sealed, write_sealed
from glassformer.base.wording import counted
from glassformer.experiments.grid import FILE, Grid, GridJob, difference
from glassformer.runs.folder import Folder
from glassformer.training.reporting import duration

Result = dict[str, Any]
FOLDERS = ("runs", "results")
"""Folders that a comparison makes before it reads the text."""
NEEDED = {"loss", "bits_per_byte", "unit", "parameters", "choices", "entropy", "writes"}
"""Keys that the result of each finished run has."""


def run_grid(folder: Path, grid: Grid, jobs: int, note: Callable[[str], None]) -> dict[str, Result]:
    """Train all unfinished runs of a grid, and return the results of its runs by name.

    Args:
        folder: folder of this grid; new, empty, or with the same grid, which may have fewer seeds.
        grid: grid to train.
        jobs: number of parallel processes; each uses one thread unless `train.threads` is set.
        note: function that receives progress messages.

    Raises:
        GlassError: `jobs` is below 1, the folder contains other files or another grid, another process trains this
            grid, or the text cannot be read or has changed.
    """
    if jobs < 1:
        raise GlassError(f"--jobs {jobs} is less than one", "Give at least 1, the number of runs to train in parallel.")
    _check_folder(folder, grid)
    with no_empty_folders(folder):
        with convert_os_errors(folder):
            for name in FOLDERS:
                (folder / name).mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            try:
                hashes = _prepare_texts(folder, grid, note)
            except GlassError:
                if not (folder / FILE).exists():
                    _remove_unused(folder)
                raise
            grid.write(folder)
            results = read_results(folder, grid)
            _refuse_other_text(grid, results, hashes)
            open_jobs = [job for job in grid.jobs() if "loss" not in results.get(job.name, {})]
            if len(open_jobs) < len(grid.jobs()):
                note(f"already done: {len(grid.jobs()) - len(open_jobs)} of {counted(len(grid.jobs()), 'runs')}")
            Pool(folder, open_jobs, min(jobs, len(open_jobs)), note).train()
    return read_results(folder, grid)


def _remove_unused(folder: Path) -> None:
    """Remove the files and folders that this module made before the text was refused, and no others."""
    rmtree(folder / "runs" / ".tokens", ignore_errors=True)
    for name in FOLDERS:
        with suppress(OSError):  # it contains other files
            (folder / name).rmdir()
    with suppress(OSError):  # Windows does not delete open files
        (folder / "lock").unlink()


def read_results(folder: Folder, grid: Grid) -> dict[str, Result]:
    """Return the results so far by run name: a finished run has the key `loss`, a failed run the key `failed`.

    Damaged and edited results are left out, so that their runs are finished again.
    """
    results = {}
    results_folder = Path(folder) / "results"
    for job in grid.jobs():
        with suppress(GlassError):
            result = read_sealed(results_folder / f"{job.name}.json", "")
            if "failed" in result or result.keys() >= NEEDED:
                results[job.name] = result
    return results


def _check_folder(folder: Path, grid: Grid) -> None:
    """Raise a `GlassError` if the comparison cannot be made in this folder.

    The path is a file; the folder contains a different grid (added seeds are allowed); or it contains no grid, but
    files other than those of a killed comparison.
    """
    if folder.exists() and not folder.is_dir():
        raise GlassError(f"{folder} is a file, not a folder", "Choose another --out.")
    if (folder / FILE).exists():
        if changed := difference(Grid.read(folder), grid):
            raise GlassError(
                f"{folder} contains a comparison with {changed}",
                "Give the same settings to resume it, or another --out.",
            )
        return
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    allowed = {*FOLDERS, "lock"}  # left by a comparison that was killed before `grid.json` was written
    if other := next((name for name in names if name not in allowed), None):
        raise GlassError(f"{folder} is not empty: it contains {other}", "Choose another --out, or empty that folder.")


def _prepare_texts(folder: Path, grid: Grid, note: Callable[[str], None]) -> dict[str, str]:
    """Read and encode each text once, before the processes start; return the hash of each text by its `text_key`."""
    from glassformer.training.setup import text_of_run

    hashes: dict[str, str] = {}
    for cell in grid.cells:
        if text_key(cell.config) not in hashes:
            hashes[text_key(cell.config)] = text_of_run(cell.config, folder / "runs" / "new", note).text_hash
    return hashes


def text_key(config: Any) -> str:
    """Return a string of all settings that determine the tokens of a run.

    Runs with equal strings have equal tokens, unless the text changes in between.
    """
    return json.dumps([config.train.task, config.data.model_dump(), config.tokenizer.model_dump()])


def _refuse_other_text(grid: Grid, results: dict[str, Result], hashes: dict[str, str]) -> None:
    for job in grid.jobs():
        text_hash = results.get(job.name, {}).get("text_hash")
        if text_hash is not None and text_hash != hashes[text_key(job.config)]:
            raise GlassError(
                f"{job.config.data.source} has changed since {job.name} was trained on it: its hash differs",
                "Restore the text, or start again with another --out.",
            )


class Pool:
    """A pool of worker processes for the runs in one queue; if a process dies, only its current run fails."""

    def __init__(self, folder: Path, jobs: list[GridJob], processes: int, note: Callable[[str], None]) -> None:
        self.folder = folder
        self.processes = processes
        self.note = note
        self.total = len(jobs)
        self._queue: SimpleQueue[GridJob] = SimpleQueue()
        for job in jobs:
            self._queue.put(job)
        self._lock = threading.Lock()
        self._finished = 0
        self._began = time.monotonic()
        self._workers: list[subprocess.Popen[str]] = []
        self._stopped = False

    def train(self) -> None:
        """Train all runs. The worker processes are killed at the end, even after an error."""
        if not self.total:
            return
        self.note(f"training {counted(self.total, 'runs')}, {self.processes} at a time")
        with (self.folder / "worker.log").open("a", encoding="utf-8") as log:
            with ThreadPoolExecutor(self.processes) as threads:
                try:
                    futures = [threads.submit(self._take_jobs, log) for _ in range(self.processes)]
                    wait(futures, return_when=FIRST_EXCEPTION)
                finally:
                    self._stop()
            for future in futures:
                future.result()

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for worker in self._workers:
                worker.kill()

    def _start(self, log: TextIO) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "glassformer.experiments.worker", str(self.folder)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"}
        with self._lock:
            worker = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
                encoding="utf-8",
            )
            self._workers.append(worker)
        return worker

    def _take_jobs(self, log: TextIO) -> None:
        worker = None
        while not self._stopped:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            worker = worker or self._start(log)
            result = self._train_in_worker(worker, job)
            self._report_progress(job, result)
            if worker.poll() is not None:
                worker = None
        if worker is not None:
            worker.kill()
            worker.wait()

    def _train_in_worker(self, worker: subprocess.Popen[str], job: GridJob) -> Result:
        """Let a worker train a run; return its result, or a failure with the worker's exit code."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        file = self.folder / "results" / f"{job.name}.json"
        file.unlink(missing_ok=True)  # left by an earlier attempt that failed
        with suppress(OSError):
            worker.stdin.write(job.name + "\n")
            worker.stdin.flush()
            if worker.stdout.readline():
                return read_sealed(file, "")
        remedy = f"See {self.folder / 'worker.log'}."
        result = {"failed": f"its process ended with code {worker.wait()}", "remedy": remedy}
        if not self._stopped:
            write_sealed(file, result)
        return result

    def _report_progress(self, job: GridJob, result: Result) -> None:
        with self._lock:
            if self._stopped:
                return
            self._finished += 1
            seconds_left = (time.monotonic() - self._began) / self._finished * (self.total - self._finished)
            outcome = f"loss {result['loss']:.4f}" if "loss" in result else f"failed: {result['failed']}"
            remaining = f", about {duration(seconds_left)} left" if self._finished < self.total else ""
            self.note(f"[{self._finished}/{self.total}] {job.name}: {outcome}{remaining}")
