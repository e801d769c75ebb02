"""Legs of a run: the parts of its training between a start or resume and the next stop.

Each leg has an entry in `manifest.json` with the machine and the package versions. Resuming a run that has already
ended adds no entry.
"""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glassformer.base.version import __version__
from glassformer.runs.folder import Run, package_versions
from glassformer.training.stepping import Stepper

NUMERIC = {
    "processor": "processor",
    "instruction_set": "instruction set",
    "threads": "threads",
    "device": "device",
    "precision": "precision",
    "processes": "processes",
}
"""Entry of a leg -> its name in messages. A difference in one of these entries, or in a package version, can change the
results, mostly only in the last digits."""


def describe_leg(stepper: Stepper, step: int) -> dict[str, Any]:
    """Return the entry in `manifest.json` for a leg that begins after `step` in this process."""
    device = stepper.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "first_step": step + 1,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "processor": processor_name(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": device.type if name is None else f"{device.type} ({name})",
        "precision": str(stepper.dtype).removeprefix("torch."),
        "processes": stepper.processes.world_size,
        "glassformer": __version__,
        "python": platform.python_version(),
        "packages": package_versions(),
    }


def add_leg(run: Run, leg: dict[str, Any]) -> str | None:
    """Add a leg to the manifest; return one line with the differences from the previous leg that can affect results.

    Return None if there is no such difference or no previous leg.

    Raises:
        GlassError: the manifest is missing or damaged.
    """
    manifest = run.manifest()
    legs = manifest.get("legs", [])
    run.write_manifest({**manifest, "legs": [*legs, leg]})
    return _difference(legs[-1], leg) if legs else None


def end_leg(run: Run, ending: dict[str, Any]) -> None:
    """Record how the last leg of the manifest ended; a run without legs is not changed.

    Raises:
        GlassError: the manifest is missing or damaged.
    """
    manifest = run.manifest()
    if legs := manifest.get("legs"):
        run.write_manifest({**manifest, "legs": [*legs[:-1], {**legs[-1], **ending}]})


def record_fact(run: Run, name: str, value: str | None) -> None:
    """Write a field of the manifest.

    Raises:
        GlassError: the manifest is missing or damaged.
    """
    run.write_manifest({**run.manifest(), name: value})


def _difference(previous: dict[str, Any], current: dict[str, Any]) -> str | None:
    changed = [
        f"{label} {previous[name]} -> {current[name]}"
        for name, label in NUMERIC.items()
        if previous[name] != current[name]
    ]
    versions = {**previous["packages"], "glassformer": previous["glassformer"]}
    changed += [
        f"{name} {versions[name]} -> {version}"
        for name, version in {**current["packages"], "glassformer": current["glassformer"]}.items()
        if versions[name] != version
    ]
    if not changed:
        return None
    return (
        f"changed since the last start of this run: {', '.join(changed)}; results may differ, mostly in the last digits"
    )


def processor_name() -> str:
    """Return the model name of the CPU as reported by the operating system, or else the type of the machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    model_names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(model_names, platform.processor() or platform.machine())
