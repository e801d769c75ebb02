"""Memory: minimum for training, peak of the process, free memory of a device, and settings of allocators and caches."""

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
from glassformer.model.precision import MARGIN, cached_speeds
from glassformer.model.shapes_only import shapes_only
from glassformer.text.prepare import Prepared
from glassformer.training.averaging import WeightAverage
from glassformer.training.muon import Muon
from glassformer.training.optimizers import make_optimizers
from glassformer.training.setup import vocabulary_sizes_and_classes

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
FLOAT32_BYTES = 4
"""Bytes of a weight, a gradient or a moment, all float32."""
LARGE = 9 << 20
"""If rows have many lengths: minimum bytes of an allocation that glibc maps separately. The loss allocates blocks of up
to 8 MiB in every forward pass; if these were mapped separately, they would have to be zeroed each time."""
PRIMITIVE_CACHE_CAPACITY = {"fp32": 0, "bf16": 128, "auto": 128}
"""train.precision -> number of oneDNN primitives to cache. Measured: without a cache, float32 is as fast and bfloat16
takes a third longer; in bfloat16, 128 primitives are as fast as 1,024. `auto` may still choose bfloat16 if this CPU was
never timed."""
MATMUL_CACHE_CAPACITY = 16
"""Value of LRU_CACHE_CAPACITY. Measured in bfloat16 on conversations of up to 111 tokens: as fast as 128 and as
PyTorch's default of 1,024, which use 80 and 420 MiB more after 100 steps."""
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
"""Numbers of these options in glibc's malloc.h."""
TRIM_THRESHOLD = (1 << 31) - 1
"""Free bytes at the top of the heap above which glibc returns memory to the system: 2 GiB, to make this rare."""
MMAP_THRESHOLD = 32 << 20
"""If rows have one length: minimum bytes of an allocation that glibc maps separately; glibc allows no larger value."""


def checkpoint_bytes(config: Config, data: Prepared) -> int:
    """Return the bytes of weights and optimizer state in one checkpoint, without allocating them."""
    weights, _, state = _weights_gradients_and_state(config, data)
    return weights + state


def least_training_memory(config: Config, data: Prepared) -> int:
    """Return the minimum memory for training in bytes: weights, gradients and optimizer state, without activations."""
    return sum(_weights_gradients_and_state(config, data))


def _weights_gradients_and_state(config: Config, data: Prepared) -> tuple[int, int, int]:
    """Return the bytes of weights, gradients and optimizer state; frozen parameters have only weights."""
    vocabulary, source, classes = vocabulary_sizes_and_classes(config, data)
    with shapes_only():
        model = build_model(config.model, vocabulary, source_vocab_size=source, classes=classes)
    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    state = sum(_state_bytes(optimizer) for optimizer in make_optimizers(model, config.train))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return weights, sum(each.numel() * each.element_size() for each in trained), state


def _state_bytes(optimizer: Optimizer) -> int:
    """Return the bytes of an optimizer's state.

    Per parameter tensor, AdamW has two moments and a step count, Muon one momentum, `WeightAverage` one tensor and a
    step count.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    elements = sum(parameter.numel() for parameter in parameters)
    if isinstance(optimizer, Muon):
        return FLOAT32_BYTES * elements
    return FLOAT32_BYTES * ((1 if isinstance(optimizer, WeightAverage) else 2) * elements + len(parameters))


def has_many_lengths(config: Config) -> bool:
    """Return whether rows are examples or documents, which differ in length, and not windows of one length."""
    return config.train.task in EXAMPLES or config.data.windows != "stream"


def configure_allocator(config: Config) -> None:
    """Configure glibc's allocator for rows of one length or of many lengths, and call `limit_shape_caches`.

    With rows of one length, every step allocates the same blocks. By default glibc returns large freed blocks to the
    system, which must zero them again at the next step; with a vocabulary of 8,000, this takes a third of a bfloat16
    step. Therefore glibc is configured to keep freed blocks of up to 32 MiB; the peak is unchanged.

    With rows of many lengths, such blocks fragment the heap, and the peak grows with the steps. glibc maps large blocks
    separately and unmaps them when they are freed, but each time it raises the size that counts as large, up to 32 MiB
    (mallopt(3), M_MMAP_THRESHOLD). Therefore this threshold is fixed at `LARGE`.

    Memory that was already freed, for example after encoding the text, is returned to the system. Without glibc, the
    allocator is unchanged.
    """
    limit_shape_caches(config)
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return
    library.malloc_trim(0)
    if has_many_lengths(config):
        library.mallopt(M_MMAP_THRESHOLD, LARGE)
    else:
        library.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        library.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)


def limit_shape_caches(config: Config) -> None:
    """Limit the caches of oneDNN and of PyTorch's layer above it when rows have many lengths.

    By default oneDNN caches 1,024 primitives of about 100 kB each, which wastes memory if shapes rarely repeat;
    `PRIMITIVE_CACHE_CAPACITY` is the new limit. PyTorch also caches up to 1,024 bfloat16 matrix multiplications of a
    few hundred kB each, including their workspace, which fragments the heap; `MATMUL_CACHE_CAPACITY` is the new limit.
    The libraries read these limits from ONEDNN_PRIMITIVE_CACHE_CAPACITY and LRU_CACHE_CAPACITY at the first matrix
    multiplication, so call this function before all matrix multiplications, including those that are timed to resolve
    `auto`. Variables that are already set keep their values.
    """
    if not has_many_lengths(config):
        return
    precision: str = config.train.precision
    speeds = cached_speeds() if precision == "auto" else None
    if speeds is not None:
        precision = "bf16" if speeds.ratio >= MARGIN else "fp32"
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(PRIMITIVE_CACHE_CAPACITY[precision]))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(MATMUL_CACHE_CAPACITY))


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak that `peak_memory` returns, where that is possible: on CUDA GPUs, and on Linux (proc(5))."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif CLEAR_REFS.exists():
        with contextlib.suppress(OSError):
            CLEAR_REFS.write_text("5", encoding="ascii")


def peak_memory(device: torch.device) -> int | None:
    """Return the peak memory of this process in bytes since `reset_peak_memory`; None if it is not known.

    On a CUDA GPU: memory allocated by torch. Otherwise, on Linux: peak resident size minus the current size of shared
    memory and of the pages of files, which the system can drop when it needs memory. On macOS: peak resident size since
    the start of the process, including the pages of files.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if STATUS.exists():
        status = STATUS.read_text(encoding="ascii", errors="replace")
        sizes = {name: _read_size(status, name) for name in ("VmHWM", "RssFile", "RssShmem")}
        return sizes["VmHWM"] - sizes["RssFile"] - sizes["RssShmem"]
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def memory_kind(device: str) -> str:
    """Return a description of the memory that `peak_memory` measures."""
    if device.startswith("cuda"):
        return "allocated on the GPU"
    return "resident, files included" if sys.platform == "darwin" else "resident, files not counted"


def free_memory(device: torch.device) -> int | None:
    """Return the bytes of memory that this process could still allocate; None if the system does not report it.

    On macOS, which does not report free memory, return the total memory.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if MEMINFO.exists():
        free = _read_size(MEMINFO.read_text(encoding="ascii", errors="replace"), "MemAvailable")
        left_in_group = _bytes_left_in_group()
        return free if left_in_group is None else min(free, left_in_group)
    if sys.platform == "darwin":
        pages = os.sysconf("SC_PHYS_PAGES")  # total memory: macOS does not report free memory
        return os.sysconf("SC_PAGE_SIZE") * pages
    return None


def _bytes_left_in_group() -> int | None:
    """Return the bytes left under the container's limit (Linux control groups, version 2); None without a limit."""
    try:
        limit, used = (int((CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no such limit, or the word "max"
        return None
    return max(0, limit - used)


def _read_size(text: str, name: str) -> int:
    """Return the value in bytes of a line such as `VmHWM:  421 kB`; 0 if there is no such line."""
    match = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    return 1024 * int(match[1]) if match else 0
