"""The proof sheet: all checks of one run, and what they found, bound to its weights."""

from __future__ import annotations

import json
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

from glassformer import __version__
from glassformer.base.errors import MALFORMED, GlassError, nearest
from glassformer.base.files import sha256, write_text
from glassformer.base.wording import counted, quoted
from glassformer.model.device import choose_device
from glassformer.runs.folder import Run, Which, open_run
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
from glassformer.verification.verified_run import VerifiedRun

CHECKS: tuple[Check, ...] = (
    *file_checks.CHECKS,
    *decoding_checks.CHECKS,
    *masking_checks.CHECKS,
    *numeric_checks.CHECKS,
    *training_checks.CHECKS,
    *export_checks.CHECKS,
)
"""All that is checked, in this order."""
CHECKED = {"name", "claim", "unit", "measured", "limit", "ok", "note"}
"""What a kept sheet has of each check."""
PACKAGES = ("torch", "numpy", "tokenizers", "safetensors")


@dataclass(frozen=True)
class ProofSheet:
    """Results of the checks of one run.

    Attributes:
        run: the folder.
        checkpoint: the name of the checkpoint whose weights were checked.
        weights: SHA-256 of its weights' file; None where there is none.
        rows_from: the source of the rows that the checks used, in words.
        results: one for each check.
        seconds: all of it took.
    """

    run: Path
    checkpoint: str
    weights: str | None
    rows_from: str
    results: tuple[Result, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """True if no check failed and every check that concerns the run could be made."""
        return all(result.ok is not False and result.made for result in self.results)

    def facts(self) -> dict[str, Any]:
        """For `verify.json` and `--json`."""
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
        """Return the checks that could not be made, and a summary; each result is printed as it comes."""
        unmade = self.unmade()
        return f"\n{self.summary()}" if unmade is None else f"{unmade}\n\n{self.summary()}"

    def summary(self) -> str:
        """Count the checks by their verdicts, in one line."""
        counts = {ok: sum(result.ok is ok for result in self.results) for ok in (True, False, None)}
        failed = [result.check.name for result in self.results if result.ok is False]
        named = f" ({', '.join(failed)})" if failed else ""
        missing = sum(not result.made for result in self.results)
        unmade = f", {missing} could not be made" if missing else ""
        passed = counted(counts[True], "checks")
        exempt = counted(counts[None] - missing, "do not apply", "does not apply")
        return (
            f"{self.checkpoint} of {self.run}: {passed} passed, {counts[False]} failed{named}, "
            f"{exempt}{unmade}; on {self.rows_from}; {self.seconds:.1f} s"
        )

    def unmade(self) -> str | None:
        """One line on all checks that could not be made, and why; None where there is none."""
        missing = [result for result in self.results if not result.made]
        why = "; ".join(dict.fromkeys(result.note for result in missing))
        return f"-     {why}: {', '.join(result.check.name for result in missing)}" if missing else None


def verify_run(
    folder: Path,
    which: Which = "best",
    device: str = "auto",
    only: Sequence[str] = (),
    tell: Callable[[Result], None] = lambda result: None,
) -> ProofSheet:
    """Put a run's promises to the test. Its files are read only; PyTorch's random numbers are as they were afterwards.

    Args:
        folder: of the run.
        which: of its checkpoints.
        device: the one that is compared with the CPU, as in `train.device`.
        only: names of checks; none: all of them.
        tell: is given each result as it comes.

    Raises:
        GlassError: there is no such run, check or device, or another process gave the run other weights meanwhile.
    """
    run = open_run(folder)
    choose_device(device)
    subject = VerifiedRun(run, which, device)
    checks = chosen(only)
    started = time.perf_counter()
    results = list[Result]()
    name, weights = _weights(run, which)
    with own_random_numbers():
        for check in checks:
            results.append(make(check, subject))
            tell(results[-1])
    text = subject.text if subject.trouble is None else "nothing"
    if _weights(run, which) != (name, weights):
        raise GlassError(f"the {which} checkpoint of {folder} changed meanwhile", "Verify it when training is over.")
    return ProofSheet(folder, name, weights, text, tuple(results), time.perf_counter() - started)


def save(sheet: ProofSheet) -> Path:
    """Write `verify.json` into the run's folder, whole or not at all."""
    path = sheet.run / "verify.json"
    write_text(path, json.dumps(sheet.facts(), indent=1, ensure_ascii=False) + "\n")
    return path


def kept_sheet(run: Run) -> dict[str, Any] | None:
    """Return the contents of `verify.json` in a run's folder; None where the run was not verified.

    Raises:
        GlassError: the file is damaged.
    """
    path = run.folder / "verify.json"
    try:
        facts = dict(json.loads(path.read_text(encoding="utf-8")))
        if not all(check.keys() >= CHECKED for check in facts["checks"]):
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, *MALFORMED):
        raise GlassError(f"{path} is damaged", "Write it anew: glass verify " + quoted(run.folder)) from None
    return facts


def chosen(only: Sequence[str]) -> tuple[Check, ...]:
    """The checks of these names; all, if there are no names.

    Raises:
        GlassError: there is no check of that name.
    """
    named = {check.name: check for check in CHECKS}
    for name in only:
        if name not in named:
            raise GlassError(f"there is no check {name!r}", nearest(name, named))
    return tuple(check for check in CHECKS if check.name in only or not only)


def make(check: Check, subject: VerifiedRun) -> Result:
    """Carry out one check. One that breaks down has failed: whatever it is, something is not as promised."""
    started = time.perf_counter()
    if not check.files_only and subject.trouble is not None:
        return Result(check, None, None, f"not made, since {subject.trouble}", 0.0, made=False)
    try:
        why = check.exempt(subject)
        if why is not None:
            return Result(check, None, None, f"does not apply: {why}", time.perf_counter() - started)
        found = check.measure(subject)
    except GlassError as error:
        return Result(check, False, None, error.problem, time.perf_counter() - started)
    except Exception as error:
        note = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Result(check, False, None, note, time.perf_counter() - started)
    passed = bool(found.measured <= check.limit)  # what is not a number is not
    return Result(check, passed, float(found.measured), found.note, time.perf_counter() - started)


def _weights(run: Run, which: Which) -> tuple[str, str | None]:
    """The name of a checkpoint, and the hash of its weights as they lie there."""
    try:
        name = (run.folder / which).read_text(encoding="utf-8").strip()
        return name, sha256(run.checkpoints / name / "model.safetensors")
    except (OSError, UnicodeDecodeError):
        return f"no {which} checkpoint", None
