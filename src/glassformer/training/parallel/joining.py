"""Join the processes of a run, using the environment variables that `torchrun` sets."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from glassformer.base.config import Config
from glassformer.base.errors import GlassError, ReportedElsewhereError
from glassformer.base.version import __version__
from glassformer.model.device import choose_device
from glassformer.model.precision import FIELDS
from glassformer.runs.folder import Run, open_run, package_versions
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
def report_errors_once() -> Iterator[None]:
    """Return a context for work before the processes join, so that each host reports an error only once."""
    try:
        yield
    except GlassError as error:
        if not several() or int(os.environ.get("LOCAL_RANK", "0")) == 0:
            raise
        raise ReportedElsewhereError(error.problem, error.remedy) from error


@contextmanager
def joined(config: Config, facts: Mapping[str, str] | None = None) -> Iterator[Processes]:
    """Join the processes of this run, yield them, and leave the process group at the end.

    Args:
        config: all settings.
        facts: further values that must be the same in all processes; name in messages -> value.

    Raises:
        GlassError: there is no device for this process, another process has ended or does not start, or a process has
            other settings, other `facts`, or another version of the code or of a package.
    """
    if not several():
        yield OneProcess()
        return
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from glassformer.training.parallel.heartbeat import JOIN, REMEDY, Heartbeat
    from glassformer.training.parallel.replicas import Replicas

    device = _device_of_process(config.train.device)
    heartbeat = None
    try:
        store, rank, world = next(rendezvous("env://", timeout=JOIN))
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # Restarted processes must not find the addresses of killed processes in the store: pytorch issue 167288.
            start = os.environ.get("TORCHELASTIC_RESTART_COUNT")
            store = dist.PrefixStore(f"start {start}", store)  # type: ignore[attr-defined]
        heartbeat = Heartbeat(store, rank, world)
        with heartbeat.running():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=world)
            try:
                if config.train.shard:
                    from glassformer.training.parallel.shards import Shards

                    processes: Replicas = Shards()
                else:
                    processes = Replicas()
                processes.require_equal({**_code(), "device": device.type, **config.as_texts(), **(facts or {})})
                yield processes
            finally:
                dist.destroy_process_group()
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(
            phrase in str(error) for phrase in LOST_CONNECTION_PHRASES
        ):
            raise
        silent = None if heartbeat is None else heartbeat.silent(2)
        raise GlassError(
            f"another process of this run has ended or does not respond{'' if silent is None else f': {silent}'}",
            REMEDY,
        ) from error


def _code() -> dict[str, str]:
    """Return the versions of everything that computes: glassformer, its code, Python and packages."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return {
        "glassformer": __version__,
        "the code of glassformer": f"SHA-256 {digest.hexdigest()[:16]}",
        "Python": platform.python_version(),
        **package_versions(),
    }


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
    recorded = open_run(folder).config()
    decided = {name: getattr(recorded.train, name) for name in FIELDS if getattr(config.train, name) == "auto"}
    if recorded != config.replace(train={**config.train.model_dump(), **decided}):
        raise GlassError(
            f"{folder} was created by this torchrun job with other settings",
            "Give each torchrun job a different --rdzv-id, or resume the run with --resume.",
        )
    return True
