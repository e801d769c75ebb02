"""Memory: the minimum for training, the peak of the process, and the free memory of a device."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from pathlib import Path

import torch
from torch.optim import Optimizer

from glassformer.base.config import EXAMPLES, Config
from glassformer.model.build import build_model
from glassformer.model.shapes_only import shapes_only
from glassformer.text.prepare import Prepared
from glassformer.training.muon import Muon
from glassformer.training.optimizers import make_optimizers
from glassformer.training.setup import sizes

STATUS = Path("/proc/self/status")
FORGET = Path("/proc/self/clear_refs")
SYSTEM = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
FLOAT = 4
"""Bytes of a weight, a gradient, a moment: all are float32."""
LARGE = 9 << 20
"""Bytes from which on a tensor gets pages of its own, where rows have many lengths: the loss needs blocks of 8 MB in
every forward pass, which shall not be cleared anew each time."""
SHAPES_KEPT = {"fp32": 0, "bf16": 128, "auto": 128}
"""By train.precision. Measured: keeping none costs no time in float32 and a third more in bfloat16, where 128 are as
fast as 1,024. With `auto`, bfloat16 may still be chosen."""
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
"""Their numbers in glibc's malloc.h."""
KEPT = (1 << 31) - 1
"""Free bytes at the end of the heap from which on they go back to the system: practically never."""
KEPT_BLOCK = 32 << 20
"""Bytes from which on a tensor gets pages of its own where memory is kept: glibc allows no more."""


def checkpoint_bytes(config: Config, data: Prepared) -> int:
    """Return the bytes of weights and optimizer state of one checkpoint; nothing is allocated."""
    return sum(_weights_and_state(config, data))


def least_training_memory(config: Config, data: Prepared) -> int:
    """Bytes of weights, their gradients and the optimizer state: what training needs before any activation."""
    weights, state = _weights_and_state(config, data)
    return 2 * weights + state


def _weights_and_state(config: Config, data: Prepared) -> tuple[int, int]:
    vocabulary, source, classes = sizes(config, data)
    with shapes_only():
        model = build_model(config.model, vocabulary, source_vocab_size=source, classes=classes)
    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    return weights, sum(_state_bytes(optimizer) for optimizer in make_optimizers(model, config.train))


def _state_bytes(optimizer: Optimizer) -> int:
    """AdamW keeps two moments and a step count for each parameter, Muon one momentum."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = sum(parameter.numel() for parameter in parameters)
    return FLOAT * (numbers if isinstance(optimizer, Muon) else 2 * numbers + len(parameters))


def has_many_lengths(config: Config) -> bool:
    """Return whether rows are texts or documents of their own, and not windows of one length."""
    return config.train.task in EXAMPLES or config.data.windows == "documents"


def steady_heap(config: Config) -> None:
    """Let this process keep its memory where all rows are as long; elsewhere let it give back what it frees.

    Where all rows are as long, every step needs the same blocks. glibc gives large ones back to the system when they
    are freed, and the next step waits for the system to clear them again: with a vocabulary of 8,000, that was a third
    of a step in bfloat16. So they are kept; the peak is the same.

    Where rows have many lengths, the peak would grow with the steps. glibc gives a large block pages of its own, which
    go back to the system with it. But each time one is freed, it takes that size, up to 32 MiB, as the new limit of
    what is large (mallopt(3), M_MMAP_THRESHOLD). From then on activations lie in its heap, and those of other lengths
    do not fit the gaps that they leave. Here the limit stays.

    Systems without glibc are left as they are.
    """
    keep_few_shapes(config)
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return
    if has_many_lengths(config):
        library.mallopt(M_MMAP_THRESHOLD, LARGE)
        library.malloc_trim(0)
    else:
        library.mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK)
        library.mallopt(M_TRIM_THRESHOLD, KEPT)


def keep_few_shapes(config: Config) -> None:
    """Limit the shapes for which oneDNN keeps a prepared multiplication, where rows have many lengths.

    oneDNN keeps 1,024 of them, some 100 kB each, unless ONEDNN_PRIMITIVE_CACHE_CAPACITY says otherwise. Where shapes
    rarely repeat, that only takes memory; `SHAPES_KEPT` is enough for the layers of one step. oneDNN reads the
    variable at its first multiplication, so call this before any, also before `auto` is decided by timing some. A
    variable that is set already stays.
    """
    if has_many_lengths(config):
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(SHAPES_KEPT[config.train.precision]))


def forget_peak(device: torch.device) -> None:
    """Let `peak_memory` count from now on, where the system allows it (Linux, proc(5); GPUs)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif FORGET.exists():
        with contextlib.suppress(OSError):
            FORGET.write_text("5", encoding="ascii")


def peak_memory(device: torch.device) -> int | None:
    """The most memory that this process has held since `forget_peak`, in bytes; None where the system does not tell.

    On a GPU what torch had allocated there. On Linux the anonymous resident size: the peak of the resident size less
    the pages of files, which the system can drop when it needs room. On macOS the resident size with those pages.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if STATUS.exists():
        found = STATUS.read_text(encoding="ascii", errors="replace")
        sizes = {name: _kibibytes(found, name) for name in ("VmHWM", "RssFile", "RssShmem")}
        return sizes["VmHWM"] - sizes["RssFile"] - sizes["RssShmem"]
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def memory_kind(device: str) -> str:
    """Describe in words the memory that `peak_memory` measures."""
    if device.startswith("cuda"):
        return "allocated on the GPU"
    return "resident, files included" if sys.platform == "darwin" else "resident, files not counted"


def free_memory(device: torch.device) -> int | None:
    """Bytes that this process could still take, as far as the system tells."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if SYSTEM.exists():
        free = _kibibytes(SYSTEM.read_text(encoding="ascii", errors="replace"), "MemAvailable")
        left = _left_in_group()
        return free if left is None else min(free, left)
    if sys.platform == "darwin":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf(
            "SC_PHYS_PAGES"
        )  # of the whole machine: the free part is not told
    return None


def _left_in_group() -> int | None:
    """Bytes that a container's limit leaves (Linux control groups, version 2)."""
    try:
        limit, used = (int((GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no such limit, or the word "max"
        return None
    return max(0, limit - used)


def _kibibytes(text: str, name: str) -> int:
    """The bytes of a line such as `VmHWM:  421 kB`; 0 where there is none."""
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
