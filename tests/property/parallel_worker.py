"""Work of each process for `test_parallel.py`, for several numbers of processes."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.locks import folder_lock
from glassformer.runs.run_text import open_text
from glassformer.tasks.make import make_task
from glassformer.training.loop import compute_gradients, train
from glassformer.training.parallel.joining import joined
from glassformer.training.parallel.processes import OneProcess, Processes
from glassformer.training.reporting import Silent
from glassformer.training.setup import fresh_model, new_training, resume_training
from glassformer.training.stepping import Stepper
from glassformer.training.trainer import Trainer
from glassformer.training.validation import validation_loss
from tests.journey.commands import begin, ended
from tests.property.task_trainers import trainer_of
from tests.property.trainers import small_config, stop_during

STILL = {"model__dropout_residual": 0.0}
GRADIENTS: list[tuple[str, dict[str, Any]]] = [
    *((task, {"train__batch": 7}) for task in ("lm", "masked", "classify", "translate")),
    *((task, {"train__batch": 2}) for task in ("lm", "classify")),  # one of three processes has no row
    ("translate", {"train__batch_tokens": 90, "train__micro_batch": 2}),  # one process has fewer forward passes
]
"""Tasks and settings whose gradients are compared."""
CURVES: dict[str, dict[str, Any]] = {
    "adamw": {"train__batch": 7, "train__micro_batch": 2},
    "muon": {"train__batch": 7, "train__optimizer": "muon"},
}
SHORT = {"train__steps": 8, "train__evaluate_every": 4, "train__log_every": 1, "train__save_every": 100}
STOP = 5
"""The step after which a run is stopped."""


def stepper_of(config: Any, tokens: Path, processes: Processes) -> Stepper:
    """Return a stepper for one case of `GRADIENTS`."""
    data = open_text(config, tokens)
    return Stepper(fresh_model(config, data), make_task(config, data), config, processes)


def gradients(stepper: Stepper, step: int = 3) -> dict[str, Tensor]:
    """Return loss, number of targets, gradient norm and full gradients of a step."""
    found = compute_gradients(stepper, step)
    numbers = {"loss": torch.tensor(found.loss), "targets": torch.tensor(found.targets), "norm": found.norm}
    return numbers | {name: whole(p.grad) for name, p in stepper.model.named_parameters() if p.grad is not None}


def whole(tensor: Any) -> Tensor:
    """Return a copy of a tensor, gathered from all processes if it is sharded."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def trained(folder: Path, name: str, processes: Processes, stop: int | None = None, **changes: Any) -> Trainer:
    """Train a run of `CURVES` to its end, or stop it early."""
    config = small_config(folder, **STILL, **SHORT, **changes)
    with new_training(config, folder / name, Silent(), processes=processes) as trainer:
        return finished(trainer, stop)


def finished(trainer: Trainer, stop: int | None = None) -> Trainer:
    """Train to the end; with `stop`, the last process gets a stop signal during that step."""
    if stop is not None and trainer.processes.rank == trainer.processes.world_size - 1:
        stop_during(trainer, stop)
    assert (train(trainer) is None) == (stop is not None)
    return trainer


def bad_in_the_last(stepper: Stepper, processes: Processes) -> None:
    """Make the output of one layer non-finite in the last process only."""
    if processes.rank == processes.world_size - 1:
        layer = stepper.model.stack.blocks[1].feedforward.down
        layer.register_forward_hook(lambda module, inputs, output: output * torch.nan)


def refusal(folder: Path, name: str, processes: Processes, **changes: Any) -> str:
    """Return the error of a run whose loss is not finite in one process."""
    try:
        with new_training(
            small_config(folder, **STILL, **changes), folder / name, Silent(), processes=processes
        ) as trainer:
            bad_in_the_last(trainer.stepper, processes)
            train(trainer)
    except GlassError as error:
        return f"{type(error).__name__} {error}"
    return "nothing"


def full_disk(folder: Path, name: str, processes: Processes, **changes: Any) -> str:
    """Return the error that this process raises if the last step of a save fails in the first process."""
    config = small_config(folder, **STILL, **changes)
    with new_training(config, folder / name, Silent(), processes=processes) as trainer:
        refuse = OSError(errno.ENOSPC, "No space left on device")
        try:
            with mock.patch("glassformer.base.files._replace", side_effect=refuse):
                trainer.save_checkpoint()
        except GlassError as error:
            return f"{type(error).__name__} {error}"
    return "nothing"


def second_start(folder: Path, name: str, processes: Processes) -> str:
    """Return the error that this process raises if a run is resumed while its folder is locked."""
    with ExitStack() as held:
        processes.on_rank_zero(lambda: held.enter_context(folder_lock(folder / name)))
        try:
            with resume_training(folder / name, {}, Silent(), processes=processes):
                return "nothing"
        except GlassError as error:
            return f"{type(error).__name__} {error}"


def differing(processes: Processes) -> str:
    """Return the error that this process raises if a setting of the first process differs."""
    processes.require_equal({"model.layers": "2"})
    try:
        processes.require_equal({"model.layers": "2", "model.width": "32" if processes.is_rank_zero else "64"})
    except GlassError as error:
        return f"{type(error).__name__} {error}"
    return "nothing"


def evaluation(folder: Path, stepper: Stepper, processes: Processes) -> tuple[float, float | None, int]:
    """Return the validation loss, its confidence interval and the number of tokens, from all processes together."""
    rows = stepper.task.held_out(None)
    found = validation_loss(stepper.model, rows, stepper.device, most_tokens=50, processes=processes)
    return found.loss, found.ci95, found.tokens


def work(folder: Path, processes: Processes) -> dict[str, Any]:
    """Return all values that are compared, as this process computes them."""
    from glassformer.training.parallel.shards import Shards

    found: dict[str, Any] = {}
    for name, changes in CURVES.items() if processes.world_size == 2 else ():  # runs that stop in the middle
        trained(folder, f"broken-{name}", Shards(), STOP, **changes, train__shard=True)
    kinds: dict[str, Callable[[], Processes]] = {"replicas": lambda: type(processes)(), "shards": Shards}
    world = processes.world_size
    for kind, make in kinds.items():
        cases = torch.load(folder / "cases.pt", weights_only=False)
        for number, (config, tokens) in enumerate(cases):
            own = make()
            stepper = stepper_of(config, tokens, own)
            found[f"{kind} gradients {number}"] = gradients(stepper)
            found[f"{kind} evaluation {number}"] = evaluation(folder, stepper, own)
        for name, changes in CURVES.items():
            sharded = {"train__shard": kind == "shards"}
            trained(folder, f"{kind}-{name}-{world}", make(), **changes, **sharded)
        found[f"{kind} refusal"] = refusal(folder, f"{kind}-bad-{world}", make())
        found[f"{kind} full disk"] = full_disk(folder, f"{kind}-full-{world}", make(), train__shard=kind == "shards")
        found[f"{kind} second start"] = second_start(folder, f"{kind}-full-{world}", make())
        found[f"{kind} differing"] = differing(make())
        for optimizer in CURVES:  # saved by two processes, resumed by this number of processes of this kind
            run = folder / f"{kind}-{world}-from-{optimizer}"
            processes.on_rank_zero(partial(shutil.copytree, folder / f"broken-{optimizer}", run))
            with resume_training(run, {}, Silent(), processes=make()) as trainer:
                finished(trainer)
    return found


def prepare(folder: Path) -> list[Stepper]:
    """Save the settings and texts of `GRADIENTS` for all processes; return a single-process stepper for each case."""
    cases = list[Any]()
    steppers = list[Stepper]()
    for number, (task, changes) in enumerate(GRADIENTS):
        trainer = trainer_of(task, folder, f"case-{number}", **STILL, **changes)
        cases.append((trainer.config, Path(trainer.run.manifest()["data"]["tokens"])))
        steppers.append(stepper_of(*cases[-1], OneProcess()))
    torch.save(cases, folder / "cases.pt")
    return steppers


def start_all(worlds: Sequence[int], folder: Path) -> dict[int, list[dict[str, Any]]]:
    """Start one group of processes of each size in turn, and return the results of every process."""
    command = ["-m", "tests.property.parallel_worker", str(folder), *map(str, worlds)]
    done = ended(begin(*command, folder=Path(__file__).parents[2]))
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        world: [torch.load(folder / f"{world}-{rank}.pt", weights_only=False) for rank in range(world)]
        for world in worlds
    }


def main(folder: Path, worlds: Sequence[int]) -> None:
    """Import the modules that every process needs, and start all processes; on Linux a fork saves time."""
    for name in ("glassformer.training.parallel.shards", "torch._dynamo"):  # the latter at the first step of shards
        importlib.import_module(name)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    for world in worlds:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        started = [context.Process(target=one, args=(folder, world, rank, port)) for rank in range(world)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        if any(process.exitcode for process in started):
            sys.exit(1)


def one(folder: Path, world: int, rank: int, port: int) -> None:
    """Run one process as torchrun would start it."""
    places = {"WORLD_SIZE": world, "RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()})
    torch.set_num_threads(1)
    with joined(small_config(folder)) as processes:
        torch.save(work(folder, processes), folder / f"{processes.world_size}-{processes.rank}.pt")


if __name__ == "__main__":
    assert os.environ["OMP_NUM_THREADS"] == "1"
    main(Path(sys.argv[1]), [int(world) for world in sys.argv[2:]])
