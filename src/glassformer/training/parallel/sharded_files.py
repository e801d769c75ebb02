"""Checkpoints of sharded runs: each process writes and reads only its shards. No file uses pickle.

::

    model.safetensors              all weights, as in every checkpoint
    optimizer-1-of-2.safetensors   tensors of the optimizers, one file for each process that saved
    state.json  manifest.json      as in every checkpoint

Before the first step, there is no optimizer state: a single file `optimizer.safetensors` without tensors is written.
PyTorch's distributed checkpointing divides the tensors among the writing processes, and reassembles them for any number
of reading processes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.optim import Optimizer

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors
from glassformer.training.optimizers import check_optimizer_state


def read_sharded(folder: Path, model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Load any checkpoint into the model, and return the optimizers' tensors, sharded like their parameters.

    The model and the checkpoint may each be whole or sharded, with any number of shards.

    Raises:
        GlassError: the checkpoint belongs to another model or optimizer, or cannot be read.
    """
    with clear_errors(folder):
        metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    optimizer_keys = metadata.keys() - model.state_dict().keys()
    if foreign := sorted(key for key in optimizer_keys if not key[:1].isdigit()):
        raise GlassError(f"{folder} has a tensor that the model lacks: {foreign[0]}", "Use a checkpoint of this run.")
    shapes = {key: (metadata[key].size, metadata[key].properties.dtype) for key in sorted(optimizer_keys)}  # type: ignore[union-attr]
    check_optimizer_state(folder, shapes, optimizers)
    with clear_errors(folder):
        parameters = [[p for group in optimizer.param_groups for p in group["params"]] for optimizer in optimizers]
        tensors: dict[str, Tensor] = {}
        for key in optimizer_keys:
            optimizer_index, parameter_index, _ = key.split(".", 2)
            parameter = parameters[int(optimizer_index)][int(parameter_index)].detach()
            size = metadata[key].size  # type: ignore[union-attr]
            tensors[key] = torch.zeros_like(parameter) if parameter.shape == size else torch.zeros(size)
        read_weights(model, folder)
        _read_tensors(tensors, folder)
    return tensors


def read_weights(model: nn.Module, folder: Path) -> None:
    """Load the weights of any checkpoint into a whole or sharded model."""
    with clear_errors(folder):
        _read_tensors(dict(model.state_dict()), folder)


def _read_tensors(tensors: dict[str, Tensor], folder: Path) -> None:
    """Read tensors by name, in place."""
    with warnings.catch_warnings():  # torch warns about a single process, which is intended here
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)))


@contextmanager
def clear_errors(folder: Path) -> Iterator[None]:
    """Return a context that raises the error of one process instead of distributed checkpointing's general error."""
    with convert_os_errors(folder):
        try:
            yield
        except CheckpointException as error:
            rank, (cause, _) = next(iter(error.failures.items()))
            if isinstance(cause, OSError):
                raise cause from None
            raise GlassError(
                f"{folder} cannot be read or written: {type(cause).__name__} in process {rank}: {str(cause)[:200]}",
                "Use another complete checkpoint of this run.",
            ) from None
