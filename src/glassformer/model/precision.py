"""Choose the precision of matrix multiplications: bfloat16 if it is clearly faster on this device, else float32.

A CPU's list of instructions does not show whether bfloat16 is faster: a restricted CPU (a virtual machine,
`ONEDNN_MAX_CPU_ISA`) still lists the bfloat16 instructions. The speeds are therefore measured, once per machine and
environment, and cached in a file (see `cache_file`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch

from glassformer.base.config import Config
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import write_text
from glassformer.model.device import choose_device
from glassformer.model.threads import threads

MARGIN = 1.5
"""Minimum ratio of the speeds for which bfloat16 is chosen. CPUs with bfloat16 instructions reach 2 or more, and other
CPUs stay below 1, so noise in the timing does not change the choice."""
SMALL = (256, 128, 512)
LARGE = (256, 512, 1024)
"""Rows, inner size and columns of the timed matrix multiplications: layers of a small model and of a larger one."""
MIN_SMALL_RATIO = 0.5
"""Minimum ratio of the speeds on small matrices; below it, large matrices, which could take seconds, are not timed."""
ROUNDS = 60
SECONDS = 0.1
"""Maximum number of rounds, and maximum time in seconds, for one matrix size; at least one round is timed."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Name of a precision in the settings -> data type."""
FIELDS = ("precision", "muon_precision")
"""Settings of `train` that name a precision."""
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "TORCH_MKLDNN_MATMUL_MIN_DIM",
)
"""Environment variables that affect the speed of matrix multiplications on a CPU."""
PROCESSOR_LINES = ("model name", "flags", "Features", "CPU implementer", "CPU part")
"""Beginnings of the lines of /proc/cpuinfo that identify a CPU."""


@dataclass(frozen=True)
class Speeds:
    """Speeds of matrix multiplications with one CPU thread, in GFLOP/s.

    Attributes:
        float32, bfloat16: speed with operands of this precision.
    """

    float32: float
    bfloat16: float

    @property
    def ratio(self) -> float:
        """Return the speed of bfloat16 relative to float32."""
        return self.bfloat16 / self.float32


def bfloat16_is_faster(device: torch.device) -> bool:
    """Return whether matrix multiplications are clearly faster in bfloat16 than in float32 on a device.

    On a CPU, compare measured speeds (see `MARGIN`). A CUDA device needs bfloat16 instructions. For other devices,
    return False.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and processor_speeds().ratio >= MARGIN


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the data type for a precision setting; `auto` is bfloat16 if that is clearly faster, else float32.

    Raises:
        GlassError: there is no such precision.
    """
    if name == "auto":
        return torch.bfloat16 if bfloat16_is_faster(device) else torch.float32
    if name not in DTYPES:
        raise GlassError(f"there is no precision {name!r}", f"Use one of: auto, {', '.join(DTYPES)}.")
    return DTYPES[name]


def resolve_precision(config: Config) -> Config:
    """Return the settings with every precision `auto` replaced by its choice for `train.device`: `fp32` or `bf16`."""
    device = choose_device(config.train.device)
    names = {dtype: name for name, dtype in DTYPES.items()}
    chosen = {field: names[choose_precision(getattr(config.train, field), device)] for field in FIELDS}
    return config.replace(train={**config.train.model_dump(), **chosen})


def describe_precision(config: Config) -> str:
    """Return one line with the precision of a run and the reason for it.

    Args:
        config: settings, after `resolve_precision`.
    """
    train = config.train
    device = choose_device(train.device)
    name = str(DTYPES[train.precision]).removeprefix("torch.")
    muon = f" (Muon: {train.muon_precision})" if train.optimizer == "muon" else ""
    as_auto = (train.precision == "bf16") == bfloat16_is_faster(device)
    reason = precision_reason(device) if as_auto else f"set by train.precision, although {precision_reason(device)}"
    return f"precision {name}{muon}: {reason}"


def precision_reason(device: torch.device) -> str:
    """Return the reason why `auto` chooses float32 or bfloat16 on a device."""
    if device.type == "cuda":
        return f"this GPU has {'' if bfloat16_is_faster(device) else 'no '}bfloat16 instructions"
    if device.type == "cpu":
        return f"bfloat16 is {processor_speeds().ratio:.2g} times as fast as float32 here"
    return f"auto never chooses bfloat16 on {device.type}"


def slower_choices(config: Config) -> list[str]:
    """Return a note for each precision of a run that `auto` would not choose on this machine, with the option to set.

    Args:
        config: settings of the run, without `auto`.
    """
    device = choose_device(config.train.device)
    fields = FIELDS if config.train.optimizer == "muon" else FIELDS[:1]
    faster = "bf16" if bfloat16_is_faster(device) else "fp32"
    return [
        f"the recorded train.{field} = {getattr(config.train, field)} is slow here ({precision_reason(device)}); "
        f"--set train.{field}={faster} changes it, but also changes the results of the run"
        for field in fields
        if getattr(config.train, field) != faster
    ]


def processor_speeds() -> Speeds:
    """Return the speeds of one thread on this CPU, from the cache or else measured."""
    return _cached_or_measured(cache_file(), _environment())


def cached_speeds() -> Speeds | None:
    """Return the speeds of this CPU if they are cached, else None; measure nothing."""
    return _read(cache_file(), _environment())


def cache_speeds(speeds: Speeds) -> None:
    """Cache speeds for this machine and environment; do nothing without a writable cache folder."""
    _write(cache_file(), _environment(), speeds)
    _cached_or_measured.cache_clear()


@cache
def _cached_or_measured(file: Path | None, environment: str) -> Speeds:
    speeds = _read(file, environment)
    if speeds is None:
        speeds = measure_speeds()
        _write(file, environment, speeds)
    return speeds


def _environment() -> str:
    """Return a description of the CPU and software that determine the speeds, as JSON."""
    facts = {
        "processor": _processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "mkldnn": torch.backends.mkldnn.is_available(),
        "torch": torch.__version__,
    }
    return json.dumps(facts, sort_keys=True)


@cache
def _processor() -> str:
    """Return the CPU's name and, on Linux, its instruction sets."""
    name = f"{platform.machine()} {platform.processor()}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return name
    return "\n".join([name, *sorted({line for line in lines if line.startswith(PROCESSOR_LINES)})])


def cache_file() -> Path | None:
    """Return the cache file for the speeds of this environment; None if the user has no cache folder."""
    folder = _cache_folder()
    if folder is None:
        return None
    digest = hashlib.sha256(_environment().encode("utf-8")).hexdigest()
    return folder / "speeds" / f"{digest[:16]}.json"


def _cache_folder() -> Path | None:
    """Return the cache folder: $GLASS_CACHE, or a folder in the user's cache folder; None if the user has none."""
    configured = os.environ.get("GLASS_CACHE")
    if configured:
        return Path(configured)
    user_folder = _user_cache_folder()
    return user_folder / "glassformer" if user_folder is not None else None


def _user_cache_folder() -> Path | None:
    """Return the user's cache folder according to the conventions of the operating system; None if unknown."""
    xdg_folder = os.environ.get("XDG_CACHE_HOME", "")
    if Path(xdg_folder).is_absolute():  # the XDG specification: relative paths must be ignored
        return Path(xdg_folder)
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else None
    try:
        home = Path.home()
    except RuntimeError:  # no home directory
        return None
    return home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"


def _read(file: Path | None, environment: str) -> Speeds | None:
    """Return the speeds cached in a file; None if the file is missing, damaged or from another environment."""
    if file is None:
        return None
    try:
        cached = json.loads(file.read_text(encoding="utf-8"))
        speeds = Speeds(float(cached["float32"]), float(cached["bfloat16"]))
    except (OSError, *MALFORMED):
        return None
    valid = all(math.isfinite(speed) and speed > 0 for speed in (speeds.float32, speeds.bfloat16))
    return speeds if valid and cached.get("environment") == environment else None


def _write(file: Path | None, environment: str, speeds: Speeds) -> None:
    """Write speeds to a cache file; ignore write errors, because the speeds can be measured again."""
    if file is None:
        return
    with suppress(OSError, GlassError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({**asdict(speeds), "environment": environment}))


def measure_speeds() -> Speeds:
    """Measure the speed of matrix multiplications in float32 and bfloat16, usually in less than 0.3 s.

    Use one thread: the ratio of the speeds hardly depends on the number of threads, but on a busy machine several
    threads wait for each other, which can make a fast bfloat16 look slow. The precisions are timed in turn, and the
    shortest time of each is used. Without bfloat16 instructions a multiplication can take hundreds of times as long;
    the large matrices are then skipped.
    """
    with threads(1):
        small = _measure(SMALL)
        return small if small.ratio < MIN_SMALL_RATIO else _measure(LARGE)


def _measure(shape: tuple[int, int, int]) -> Speeds:
    rows, inner, columns = shape
    operations = 2 * rows * inner * columns / 1e9
    multiply = {dtype: _multiplication(shape, dtype) for dtype in DTYPES.values()}
    for call in multiply.values():
        call()  # warm-up: the first call prepares the kernel
    shortest = dict.fromkeys(multiply, math.inf)
    deadline = time.perf_counter() + SECONDS
    for round_index in range(ROUNDS):
        if round_index > 0 and time.perf_counter() > deadline:
            break
        for dtype, call in multiply.items():
            started = time.perf_counter()
            call()
            shortest[dtype] = min(shortest[dtype], time.perf_counter() - started)
    return Speeds(operations / shortest[torch.float32], operations / shortest[torch.bfloat16])


def _multiplication(shape: tuple[int, int, int], dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    """Return a function that multiplies two matrices of this precision; use no random numbers."""
    rows, inner, columns = shape
    left = torch.ones(rows, inner, dtype=dtype)  # (rows, inner)
    right = torch.ones(inner, columns, dtype=dtype)  # (inner, columns)
    return lambda: left @ right
