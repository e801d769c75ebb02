"""Description of the machine, without names of hosts or folders, and the peak speeds of its hardware."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from glassformer.model.device import synchronize
from peers.rows import Clock

PACKAGES = ("torch", "transformers", "tokenizers", "sentencepiece", "numpy")


RESTRICTIONS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
"""Environment variables that restrict the instructions of torch and its libraries."""
SLOW = 20e9
"""FLOP/s with 256 x 256 matrices on a CPU below which larger ones are not measured, because they may take too long."""


def describe(threads: int) -> dict[str, Any]:
    """Return GPU, processor, instruction set in use, cores, threads, memory, versions and load."""
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "restricted_by": {name: os.environ[name] for name in RESTRICTIONS if name in os.environ},
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "load": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    """Return the processor's model name, and its instruction sets for matrix multiplications."""
    try:
        found = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    name = re.search(r"^model name\s*:\s*(.+)$", found, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", found, re.MULTILINE)
    has = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flags and flag in flags[1].split()]
    return " ".join([name[1] if name else platform.machine(), *has])


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def matrix_speed(dtype: torch.dtype, clock: Clock, size: int = 2048, repeats: int = 3, device: str = "cpu") -> float:
    """Return the FLOP/s of the fastest of several multiplications of square matrices, smaller on slow processors.

    In float32 PyTorch uses MKL, which does not use AVX-512 on processors not made by Intel; oneDNN does. The speed of
    the faster library is returned, as the peak of the processor.
    """
    if size > 256 and device == "cpu":
        small = matrix_speed(dtype, clock, 256, 1)
        if small < SLOW:
            return small
    one, other = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    products: list[Callable[[], object]] = [lambda: one @ other]
    if device == "cpu" and dtype == torch.float32 and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        laid_out = torch.ops.mkldnn._reorder_linear_weight(other, None)
        products.append(lambda: torch.ops.mkldnn._linear_pointwise(one, laid_out, None, "none", [], ""))
    times = []
    for product in products:
        product()
        for _ in range(repeats):
            synchronize(torch.device(device))
            start = clock()
            product()
            synchronize(torch.device(device))
            times.append(clock() - start)
    return 2 * size**3 / min(times)


def precisions(clock: Clock, device: str) -> list[str]:
    """Return the precisions to measure: bfloat16 only if its matrix multiplications are not slower than float32's.

    On processors without instructions for it, a bfloat16 multiplication can take 80 times as long as in float32.
    """
    size = 512 if device == "cpu" else 4096
    if matrix_speed(torch.bfloat16, clock, size, device=device) < matrix_speed(
        torch.float32, clock, size, device=device
    ):
        return ["fp32"]
    return ["bf16", "fp32"]


def bandwidth(clock: Clock, numbers: int, repeats: int = 5) -> float:
    """Return the memory bandwidth in bytes per second with the current threads: the best of several sums of float32."""
    many = torch.ones(numbers)
    times = []
    for _ in range(repeats):
        start = clock()
        many.sum()
        times.append(clock() - start)
    return 4 * numbers / min(times)


def peaks(clock: Clock, quick: bool) -> dict[str, float]:
    """Return peak GFLOP/s and memory GB/s with the current threads; with `quick`, the data may fit into a cache."""
    size = 512 if quick else 2048
    return {
        "fp32_gflops": round(matrix_speed(torch.float32, clock, size) / 1e9, 1),
        "bf16_gflops": round(matrix_speed(torch.bfloat16, clock, size) / 1e9, 1),
        "memory_gb_per_second": round(bandwidth(clock, 1 << (24 if quick else 28)) / 1e9, 2),
    }
