"""Report on this machine: versions, memory, disk, compiler, devices and their precisions."""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from glassformer.base.version import __version__
from glassformer.model.device import synchronize
from glassformer.model.precision import choose_precision, precision_reason, processor_speeds
from glassformer.training.compiling import find_compiler
from glassformer.training.memory import free_memory
from glassformer.verification.device import computes_in, usable_cores

EXTRAS = {
    "tok": (("sentencepiece",), "unigram tokenizers"),
    "metrics": (("sacrebleu",), "BLEU and chrF++ of translations"),
    "sklearn": (("scikit-learn",), "estimators for scikit-learn"),
    "backends": (("onnx", "onnxruntime"), "faster generation of text"),
    "parquet": (("pyarrow",), "Parquet and Arrow files"),
    "export": (("transformers", "onnx", "onnxscript", "onnxruntime", "gguf"), "export of models to other programs"),
    "cluster": (("datatrove", "orjson"), "corpora beyond one machine"),
    "notebooks": (("jupytext", "nbformat", "ipykernel"), "exercises as notebooks"),
    "teaching": (("landlockpy", "pyseccomp"), "grading of answers that the Linux kernel confines"),
    "docs": (("sphinx", "myst-nb", "furo", "ipykernel", "sphinxcontrib-bibtex"), "building the book"),
}
"""Optional extras of this package except `all` and `test`, with the packages and the purpose of each."""
NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "pydantic")
PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
SQUARE = {"cpu": 192}
"""Size n of the n x n matrices whose multiplication is timed, by device."""
LARGE_SQUARE = 4096  # n for all other devices, which small matrices would not use fully


@dataclass(frozen=True)
class Device:
    """A CPU or GPU of this machine.

    Attributes:
        name: name of the device, such as "cpu", "cuda:0" or "mps".
        description: product name of a CUDA device, "Apple GPU", or the instruction set that torch uses on the CPU.
        memory_free: free memory in bytes; None on an Apple GPU, or if the system does not report it.
        speeds: precision -> speed of a matrix multiplication relative to float32; None if the precision is not
            supported.
        gflops: precision -> GFLOP/s of one CPU thread, on which `auto` depends; empty for other devices.
        auto: the precision that `train.precision = auto` selects on this device.
        why: the reason for this choice.
    """

    name: str
    description: str
    memory_free: int | None
    speeds: dict[str, float | None]
    gflops: dict[str, float]
    auto: str
    why: str


@dataclass(frozen=True)
class Machine:
    """Versions, memory and devices of this machine, as `glass doctor` reports them.

    Attributes:
        versions: versions of Python, this package, torch, numpy, tokenizers, safetensors and pydantic.
        extras: extra -> package -> version; None if the package is not installed.
        system: operating system and processor.
        cores: number of CPU cores that this process may use.
        memory: size of the memory in bytes; None if the system does not report it.
        memory_free: free memory in bytes; None if the system does not report it.
        disk_free: free disk space in bytes.
        compiler: path of a C++ compiler, which `torch.compile` needs on a CPU; None if there is none.
        devices: all devices that torch can use, the CPU first.
    """

    versions: dict[str, str]
    extras: dict[str, dict[str, str | None]]
    system: str
    cores: int
    memory: int | None
    memory_free: int | None
    disk_free: int
    compiler: str | None
    devices: list[Device]

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)


def inspect_machine(folder: Path) -> Machine:
    """Inspect this machine, and the free disk space at `folder`."""
    python = {"python": platform.python_version(), "glassformer": __version__}
    return Machine(
        versions={**python, **{name: metadata.version(name) for name in NEEDED}},
        extras={extra: {name: _version(name) for name in names} for extra, (names, _) in EXTRAS.items()},
        system=f"{platform.system()} {platform.release()}, {_processor()}",
        cores=usable_cores(),
        memory=_memory(),
        memory_free=free_memory(torch.device("cpu")),
        disk_free=shutil.disk_usage(folder).free,
        compiler=find_compiler(),
        devices=[_device(name) for name in device_names()],
    )


def device_names() -> list[str]:
    """Return the names of the devices that torch can use, the CPU first."""
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    """Return the size of the machine's memory in bytes; None if it is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # such as on Windows
        return None


def _device(name: str) -> Device:
    device = torch.device(name)
    if device.type == "cuda":
        description = torch.cuda.get_device_name(device)
    else:
        description = torch.backends.cpu.get_cpu_capability() if name == "cpu" else "Apple GPU"
    memory = None if device.type == "mps" else free_memory(device)
    times = {dtype: _seconds(device, dtype) if computes_in(device, dtype) else None for dtype in PRECISIONS}
    float32_time = times[torch.float32] or 0.0
    speeds = {
        str(dtype).removeprefix("torch."): float32_time / seconds if seconds else None
        for dtype, seconds in times.items()
    }
    gflops = asdict(processor_speeds()) if device.type == "cpu" else {}
    if gflops:
        speeds["bfloat16"] = processor_speeds().ratio
    auto = str(choose_precision("auto", device)).removeprefix("torch.")
    return Device(name, description, memory, speeds, gflops, auto, precision_reason(device))


def _seconds(device: torch.device, dtype: torch.dtype) -> float:
    """Return the shortest time of several matrix multiplications in seconds, after one warm-up."""
    size = SQUARE.get(device.type, LARGE_SQUARE)
    square = torch.ones(size, size, device=device, dtype=dtype)
    times = []
    for _ in range(3):
        synchronize(device)
        start = time.perf_counter()
        square @ square
        synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])
