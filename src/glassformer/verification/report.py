"""The report: results of all checks of one run, with the hash of its weights."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from glassformer.base.errors import GlassError, nearest
from glassformer.base.files import sha256
from glassformer.base.sealed import read_sealed, write_sealed
from glassformer.base.version import __version__
from glassformer.base.wording import counted, quoted
from glassformer.model.device import choose_device
from glassformer.runs.folder import Run, Which, find_run
from glassformer.verification import (
    decoding_checks,
    export_checks,
    file_checks,
    masking_checks,
    numeric_checks,
    training_checks,
)
from glassformer.verification.check import Check, Result
from glassformer.verification.process_state import own_random_numbers
from glassformer.verification.verified_run import VerifiedRun, unchanging

CHECKS: tuple[Check, ...] = (
    *file_checks.CHECKS,
    *decoding_checks.CHECKS,
    *masking_checks.CHECKS,
    *numeric_checks.CHECKS,
    *training_checks.CHECKS,
    *export_checks.CHECKS,
)
"""All checks, in the order in which they run."""
PACKAGES = ("torch", "numpy", "tokenizers", "safetensors")


@dataclass(frozen=True)
class VerificationReport:
    """Results of the checks of one run.

    Attributes:
        run: the run folder.
        checkpoint: the name of the checkpoint that was checked.
        weights: SHA-256 of the weights file; None if it cannot be read.
        rows_from: description of the source of the rows that the checks used.
        results: one result for each check.
        seconds: total duration in seconds.
    """

    run: Path
    checkpoint: str
    weights: str | None
    rows_from: str
    results: tuple[Result, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no check failed, and none was left out because the run could not be loaded."""
        return all(result.ok is not False and result.could_run for result in self.results)

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values, for `verify.json` and `--json`."""
        return {
            "ok": self.ok,
            "run": str(self.run),
            "checkpoint": self.checkpoint,
            "weights_sha256": self.weights,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "text": self.rows_from,
            "seconds": round(self.seconds, 2),
            "versions": {"glassformer": __version__, "python": platform.python_version()}
            | {name: metadata.version(name) for name in PACKAGES},
            "machine": {
                "platform": platform.platform(),
                "processor": platform.machine(),
                "cores": os.cpu_count(),
                "threads": torch.get_num_threads(),
                "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            },
            "checks": [result.facts() for result in self.results],
        }

    def text(self) -> str:
        """Return the checks that could not run, and a summary; `verify_run` passes each result to `tell`."""
        not_run = self.skipped_checks_text()
        return f"\n{self.summary()}" if not_run is None else f"{not_run}\n\n{self.summary()}"

    def summary(self) -> str:
        """Return one line with the number of checks for each verdict."""
        counts = {ok: sum(result.ok is ok for result in self.results) for ok in (True, False, None)}
        failed = [result.check.name for result in self.results if result.ok is False]
        failed_names = f" ({', '.join(failed)})" if failed else ""
        missing = sum(not result.could_run for result in self.results)
        not_run = f", {missing} could not run" if missing else ""
        passed = counted(counts[True], "checks")
        exempt = counted(counts[None] - missing, "do not apply", "does not apply")
        return (
            f"{self.checkpoint} of {self.run}: {passed} passed, {counts[False]} failed{failed_names}, "
            f"{exempt}{not_run}; on {self.rows_from}; {self.seconds:.1f} s"
        )

    def skipped_checks_text(self) -> str | None:
        """Return one line with the checks that could not run and the reasons; None if all could run."""
        missing = [result for result in self.results if not result.could_run]
        reasons = "; ".join(dict.fromkeys(result.note for result in missing))
        return f"-     {reasons}: {', '.join(result.check.name for result in missing)}" if missing else None


def verify_run(
    folder: Path,
    which: Which = "best",
    device: str = "auto",
    only: Sequence[str] = (),
    tell: Callable[[Result], None] = lambda result: None,
) -> VerificationReport:
    """Run the checks on a run, without changing the run's files or PyTorch's random state.

    Args:
        folder: the run folder.
        which: the checkpoint to verify.
        device: the device to compare with the CPU, as in `train.device`.
        only: names of the checks to run; empty: all checks.
        tell: function that is called with each result.

    Raises:
        GlassError: the run, a check or the device does not exist, or the weights were changed during the checks.
    """
    original = find_run(folder)
    if original.id is not None:  # a damaged manifest is the result of a check
        original.check_alteration(None)
    choose_device(device)
    checks = select_checks(only)
    started = time.perf_counter()
    results = list[Result]()
    with unchanging(original, which) as run, own_random_numbers():
        subject = VerifiedRun(run, which, device)
        name, weights = _checkpoint_hash(run, which)
        for check in checks:
            results.append(run_check(check, subject))
            tell(results[-1])
        rows_description = subject.rows_source if subject.load_error is None else "nothing"
        if _checkpoint_hash(run, which) != (name, weights):
            raise GlassError(
                f"the {which} checkpoint of {folder} changed during the checks",
                "Verify the run after training has ended.",
            )
    return VerificationReport(folder, name, weights, rows_description, tuple(results), time.perf_counter() - started)


def save(report: VerificationReport) -> Path:
    """Write `verify.json` into the run folder atomically."""
    path = report.run / "verify.json"
    write_sealed(path, report.facts())
    return path


def saved_report(run: Run) -> dict[str, Any] | None:
    """Return the contents of `verify.json` in a run folder; None if the run has not been verified.

    Raises:
        GlassError: the file is damaged or edited, or cannot be read.
    """
    path = run.folder / "verify.json"
    return read_sealed(path, f"Write it again: glass verify {quoted(run.folder)}") if path.exists() else None


def select_checks(only: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks with these names; all checks if `only` is empty.

    Raises:
        GlassError: a name is not the name of a check.
    """
    checks_by_name = {check.name: check for check in CHECKS}
    for name in only:
        if name not in checks_by_name:
            raise GlassError(f"there is no check {name!r}", nearest(name, checks_by_name))
    return tuple(check for check in CHECKS if check.name in only or not only)


def run_check(check: Check, subject: VerifiedRun) -> Result:
    """Run one check and return its result.

    A check that raises an exception fails. A check that needs the model does not run if the run cannot be loaded.
    """
    started = time.perf_counter()
    if not check.files_only and subject.load_error is not None:
        return Result(check, None, None, f"did not run: {subject.load_error}", 0.0, could_run=False)
    try:
        exemption = check.exempt(subject)
        if exemption is not None:
            return Result(check, None, None, f"does not apply: {exemption}", time.perf_counter() - started)
        finding = check.measure(subject)
    except GlassError as error:
        return Result(check, False, None, error.problem, time.perf_counter() - started)
    except Exception as error:
        note = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Result(check, False, None, note, time.perf_counter() - started)
    passed = bool(finding.measured <= check.limit)  # False for NaN
    return Result(check, passed, float(finding.measured), finding.note, time.perf_counter() - started)


def _checkpoint_hash(run: Run, which: Which) -> tuple[str, str | None]:
    """Return the name of a checkpoint and the hash of its weights; if either cannot be read, an error text and None."""
    try:
        name = run.read_pointer(which)
        return name, sha256(run.checkpoints_folder / name / "model.safetensors")
    except (OSError, GlassError):
        return f"no {which} checkpoint", None
