"""Processes that each have a shard of every weight; weights are gathered block by block when needed (FSDP2)."""

from __future__ import annotations

import copy
import shutil
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from glassformer.base.config import Config
from glassformer.base.files import atomic_folder, convert_os_errors
from glassformer.model.transformer import Block, Classifier, Model
from glassformer.model.weights import save_tensors
from glassformer.runs.folder import Run
from glassformer.tasks.losses import TrainingLoss
from glassformer.training.checkpoint import TrainState, point_to, step_name, write_state
from glassformer.training.optimizers import flattened
from glassformer.training.parallel.processes import LossOfBatch
from glassformer.training.parallel.replicas import Replicas
from glassformer.training.parallel.sharded_files import clear_errors, read_weights


class Shards(Replicas):
    """Process with its shards of weights, gradients and optimizer state (FSDP2)."""

    def __init__(self) -> None:
        super().__init__()
        self._skeleton: Model | None = None

    def prepare_model(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """Shard the model: each block is one unit; all other parameters together, such as the head, are another unit.

        With bfloat16, weights are gathered and used in bfloat16, and gradients are summed in float32.
        """
        self._skeleton = _skeleton(model)
        mesh = init_device_mesh(device.type, (self.world_size,))
        policy = MixedPrecisionPolicy()
        if dtype == torch.bfloat16:
            policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        units = [module for module in model.modules() if isinstance(module, Block)]
        for unit in (*units, model):
            fully_shard(unit, mesh=mesh, mp_policy=policy)
            assert isinstance(unit, FSDPModule)
            unit.set_gradient_divide_factor(1.0)  # sum instead of mean, as in `Replicas`
            unit.set_force_sum_reduction_for_comms(True)  # gloo supports only sums
        if not isinstance(model, Classifier):
            register_fsdp_forward_method(model, "hidden_states")  # training calls this instead of `forward`
        return model.to(device)

    def wrap(self, loss: TrainingLoss) -> LossOfBatch:
        """Return the loss unchanged, because `prepare_model` has already sharded its model."""
        return loss

    def no_sync(self, last: bool) -> AbstractContextManager[object]:
        """Return an empty context: gradients are summed after every micro-batch, as whole gradients may not fit."""
        return nullcontext()

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the total norm of the gradients of all processes, as a tensor of shape ()."""
        norm = torch.nn.utils.get_total_norm(gradients)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def full_model(self, model: Model) -> Model | None:
        """Return a whole copy of the model in process 0, None in other processes."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=options)  # empty except in process 0
        if not self.is_rank_zero:
            return None
        assert self._skeleton is not None
        model_copy = copy.deepcopy(self._skeleton)
        model_copy.load_state_dict(weights, assign=True)
        return model_copy.to(next(model.parameters()).device).eval()

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """Write `checkpoints/step-N` atomically, and update `best` and `last` (see `point_to`).

        The folder gets its name only after every process has written its shards.
        """
        final = run.checkpoints_folder / step_name(state.step)
        tensors, numbers = flattened(optimizers)
        with ExitStack() as stack:
            partial = self.on_rank_zero(lambda: stack.enter_context(atomic_folder(final)))
            with clear_errors(partial):
                weights_writer = HuggingFaceStorageWriter(
                    str(partial / "weights"), save_distributed=True, enable_consolidation=True
                )
                save(dict(model.state_dict()), storage_writer=weights_writer)
                save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(partial), save_distributed=True))
            self.on_rank_zero(lambda: _complete_folder(partial, run, state, numbers, config))
            self.on_rank_zero(stack.close)  # so that an error on closing is raised in every process
        self.on_rank_zero(lambda: point_to(run, state))

    def load(self, model: Model, checkpoint: Path) -> None:
        """Load this process's shards of a checkpoint's weights into the model."""
        read_weights(model, checkpoint)


def _skeleton(model: Model) -> Model:
    """Return a copy of the model whose parameters are on the meta device and take no memory."""
    meta_parameters = {id(p): nn.Parameter(torch.empty_like(p, device="meta")) for p in model.parameters()}
    return copy.deepcopy(model, meta_parameters)


def _complete_folder(partial: Path, run: Run, state: TrainState, numbers: dict[str, Any], config: Config) -> None:
    """Rename the files of weights and optimizer tensors, and write `state.json`."""
    with convert_os_errors(partial):
        (file,) = (partial / "weights").glob("*.safetensors")
        file.rename(partial / "model.safetensors")
        shutil.rmtree(partial / "weights")
        shards = sorted(partial.glob("shard-*.safetensors"))
        for number, shard in enumerate(shards, start=1):
            shard.rename(partial / f"optimizer-{number}-of-{len(shards)}.safetensors")
        if not shards:  # before the first step there is no optimizer state: write an empty file
            save_tensors({}, partial / "optimizer.safetensors")
        write_state(partial, run, state, numbers, config)
