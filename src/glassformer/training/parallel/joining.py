"""Join the processes of a run, using the environment variables that `torchrun` sets."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from glassformer.base.config import Config, TrainConfig
from glassformer.base.errors import GlassError, ReportedElsewhereError
from glassformer.model.device import choose_device
from glassformer.model.precision import FIELDS
from glassformer.runs.folder import Run
from glassformer.training.parallel.processes import OneProcess, Processes

LOST_CONNECTION_PHRASES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket",
    "socket",
    "Timed out",
)
"""Words in gloo's error messages for a process that has ended."""


def several() -> bool:
    """Return whether torchrun or a similar program started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def is_rank_zero() -> bool:
    """Return whether this process prints messages: it is the only process, or has rank 0."""
    return not several() or int(os.environ["RANK"]) == 0


@contextmanager
def report_errors_on_rank_zero() -> Iterator[None]:
    """Return a context for work before the processes join, so that only rank 0 reports errors."""
    try:
        yield
    except GlassError as error:
        if is_rank_zero():
            raise
        raise ReportedElsewhereError(error.problem, error.remedy) from error


@contextmanager
def joined(train: TrainConfig) -> Iterator[Processes]:
    """Join the processes of this run, yield them, and leave the process group at the end.

    Raises:
        GlassError: there is no device for this process, or another process has ended.
    """
    if not several():
        yield OneProcess()
        return
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from glassformer.training.parallel.replicas import Replicas

    device = _device_of_process(train.device)
    store, rank, world = next(rendezvous("env://"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # Restarted processes must not find the addresses of killed processes in the store: pytorch issue 167288.
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT")
        store = dist.PrefixStore(f"start {start}", store)  # type: ignore[attr-defined]
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        if train.shard:
            from glassformer.training.parallel.shards import Shards

            yield Shards()
        else:
            yield Replicas()
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(
            phrase in str(error) for phrase in LOST_CONNECTION_PHRASES
        ):
            raise
        raise GlassError(
            "another process of this run has ended or does not respond",
            "Resume with --resume, or let torchrun --max-restarts N do it; saved checkpoints are intact.",
        ) from error
    finally:
        dist.destroy_process_group()


def _device_of_process(name: str) -> torch.device:
    """Return the device of this process; with CUDA, make the GPU of its local rank the current GPU.

    Raises:
        GlassError: the machine has no such device, or there is no GPU for this process.
    """
    device = choose_device(name)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "mps":
        raise GlassError("several processes cannot train on mps", "Give --device cpu, or start one process.")
    if device.type == "cuda":
        if device.index is not None or local_rank >= torch.cuda.device_count():
            problem = (
                f"process {local_rank} has no GPU: each process needs a different GPU, and this machine has "
                f"{torch.cuda.device_count()}"
                if device.index is None
                else f"--device {name} names a single GPU, but each process needs a different GPU"
            )
            raise GlassError(
                problem,
                "Give --device cuda, and start at most as many processes as there are GPUs.",
            )
        torch.cuda.set_device(local_rank)
    return device


def job() -> str | None:
    """Return a name for this launch of torchrun, unchanged when it restarts processes; None without torchrun.

    The name is the `--rdzv-id`, which `--standalone` chooses at random, or else the host name and the id of the parent
    process.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{platform.node()} {os.getppid()}" if name == "none" else name


def begun_by_this_job(folder: Path, config: Config) -> bool:
    """Return whether this launch of torchrun created the run in `folder`, before it restarted its processes.

    Raises:
        GlassError: this launch created the run with other settings.
    """
    if job() is None or not (folder / "config.toml").is_file() or Run(folder).manifest().get("job") != job():
        return False
    recorded = Run(folder).config()
    decided = {name: getattr(recorded.train, name) for name in FIELDS if getattr(config.train, name) == "auto"}
    if recorded != config.replace(train={**config.train.model_dump(), **decided}):
        raise GlassError(
            f"{folder} was created by this torchrun job with other settings",
            "Give each torchrun job a different --rdzv-id, or resume the run with --resume.",
        )
    return True
