"""Inspect this machine (versions, memory, compiler, devices), and check that its devices compute correct results.

  glass doctor
  glass doctor runs/book
  glass doctor translate-modern --json

On each device, a small model computes its logits and gradients in float32 (on the CPU: with one thread and with all
threads) and, if the device supports it, in bfloat16 (with bfloat16 weights: logits only). The model has the settings of
a run or recipe, reduced sizes and random weights. The results are compared with float64 on the CPU, and fused attention
is compared with explicit attention. The exit code is 1 if a difference is too large to be a rounding error.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.config import LABELLED, Config
from glassformer.base.errors import GlassError, nearest
from glassformer.base.recipes import load_recipe, recipe_names
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer.verification.device import DeviceAgreement
    from glassformer.verification.machine import Machine

GIB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass doctor`."""
    parser.add_argument(
        "what",
        nargs="?",
        metavar="RUN|RECIPE",
        help="run or recipe with the settings to check (default: a small language model)",
    )
    parser.add_argument("--device", metavar="NAME", help="check only the CPU and this device (default: all devices)")


def run(arguments: argparse.Namespace) -> int:
    """Inspect the machine, check its devices and print the results; return 1 if a check fails."""
    start = time.perf_counter()
    config = _settings(arguments.what)
    from glassformer.model.device import choose_device
    from glassformer.verification.device import check_devices, cut_sizes
    from glassformer.verification.machine import inspect_machine

    machine = inspect_machine(Path.cwd())
    devices = [device.name for device in machine.devices]
    if arguments.device:
        devices = list(dict.fromkeys(["cpu", str(choose_device(arguments.device))]))
    model, cut = cut_sizes(config.model)
    checks = check_devices(model, devices, classify=config.train.task in LABELLED)
    ok = all(check.ok for check in checks)
    seconds = time.perf_counter() - start
    facts = {
        "ok": ok,
        "seconds": seconds,
        "settings": arguments.what,
        "cut": cut,
        "checks": [check.facts() for check in checks],
        "machine": machine.facts(),
    }
    verdict = "All agree" if ok else "NOT ALL AGREE: do not trust the results marked TOO FAR"
    lines = chain(
        _machine_lines(machine),
        _check_lines(checks, arguments.what or "a small language model", cut),
        [f"\n{verdict} ({seconds:.1f} s)."],
    )
    emit(SimpleReport(facts, lines), arguments.json)
    return 0 if ok else 1


def _settings(name: str | None) -> Config:
    """Return the settings of a run or recipe, or the defaults."""
    if name is None:
        return Config()
    if name in recipe_names():
        return Config.from_dict(load_recipe(name).settings, f"the recipe {name}")
    from glassformer.runs.folder import open_run, runs_near

    if not Path(name).exists():
        known_names = [*recipe_names(), *runs_near(Path(name))]
        raise GlassError(f"{name} is neither a run folder nor a recipe", nearest(name, known_names))
    return open_run(Path(name)).config()


def _machine_lines(machine: Machine) -> Iterator[str]:
    from glassformer.model.precision import cache_file
    from glassformer.verification.machine import EXTRAS

    yield ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    yield f"{machine.system}; {counted(machine.cores, 'usable cores')}"
    yield f"memory {_gib(machine.memory)}, free {_gib(machine.memory_free)}; free disk space {_gib(machine.disk_free)}"
    yield f"C++ compiler, for torch.compile: {machine.compiler or 'none found'}"
    for device in machine.devices:
        speeds = [f"{name} {_speed(speed)}" for name, speed in device.speeds.items() if name != "float32"]
        free = f", free {_gib(device.memory_free)}" if device.name != "cpu" else ""
        yield f"{device.name}: {device.description}{free}; against float32: {', '.join(speeds)}"
        timed = [f"{name} {speed:.3g} GFLOP/s" for name, speed in device.gflops.items()]
        if timed:
            file = cache_file()
            yield f"     one thread: {', '.join(timed)}; {'not stored' if file is None else f'stored in {file}'}"
        yield f"     train.precision = auto means {device.auto}: {device.why}"
    yield "\nextra     for                                packages"
    for extra, packages in machine.extras.items():
        versions = ", ".join(f"{name} {version or 'MISSING'}" for name, version in packages.items())
        yield f"{extra:<9} {EXTRAS[extra][1]:<34} {versions}"


def _check_lines(checks: list[DeviceAgreement], subject: str, cut: list[str]) -> Iterator[str]:
    yield f"\nResults of the devices, for {subject}{' (reduced: ' + ', '.join(cut) + ')' if cut else ''}:"
    yield f"{'':<7} {'':<38} {'logits':>8} {'limit':>8} {'gradients':>10} {'limit':>8}"
    for check in checks:
        gradients = "-" if check.gradients is None else f"{check.gradients:.1e}"
        limit = "-" if check.gradients is None else f"{check.gradient_limit:.1e}"
        row = f"{check.device:<7} {check.name:<38} {check.logits:>8.1e} {check.limit:>8.1e} {gradients:>10} {limit:>8}"
        yield f"{row}  {'ok' if check.ok else 'TOO FAR'}"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.1f} GiB"


def _speed(speed: float | None) -> str:
    return "not possible" if speed is None else f"{speed:.2g}x the speed"
