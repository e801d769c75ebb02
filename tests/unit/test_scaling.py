"""Estimates for training on many GPUs, compared with published sizes, values computed by hand, and the memory of
FSDP2 in two processes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from glassformer.base.config import ModelConfig, TrainConfig
from glassformer.model.build import build_model
from glassformer.model.transformer import Block
from glassformer.tasks.losses import MOST_LOSS_LOGITS
from glassformer.training.many_gpus import (
    GPUS,
    Gpu,
    ModelSize,
    activation_bytes,
    block_activation_bytes,
    estimate,
    flops_per_token,
    ring_speed,
    sharded,
    size_of,
    traffic,
)
from glassformer.training.optimizers import make_optimizers
from tests.journey.commands import begin, ended, here

V = 37
T = 11
ODD = ModelConfig(layers=3, width=20, heads=5, hidden=23, context=T, kv_heads=1, attention_bias=True, tied=False)
LARGE = ModelConfig(
    layers=80,
    width=8192,
    heads=64,
    kv_heads=8,
    hidden=28672,
    context=8192,
    positions="rotary",
    norm="rmsnorm",
    activation="swiglu",
    tied=False,
)
PLAIN = Gpu(100.0, 1000.0, 10.0, 5.0, 2.0, 8, "by hand")


def train_a_step(rank: int, folder: str, config: ModelConfig, world: int) -> None:
    """Take one training step in one of the FSDP2 processes, and write the sizes in bytes of its tensors to a file."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    model = build_model(config, V)
    mesh = init_device_mesh("cpu", (world,))
    for unit in (*(module for module in model.modules() if isinstance(module, Block)), model):
        fully_shard(unit, mesh=mesh)
    (optimizer,) = make_optimizers(model, TrainConfig())
    model(torch.arange(2 * T).view(2, T) % V).square().mean().backward()  # (B, T, V)
    optimizer.step()
    parameters = list(model.parameters())
    state = [value for each in optimizer.state.values() for value in each.values()]
    kept = {
        "weights": sum(map(kept_bytes, parameters)),
        "gradients": sum(kept_bytes(p.grad) for p in parameters if p.grad is not None),
        "state": sum(map(kept_bytes, state)),
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(kept), encoding="utf-8")
    distributed.destroy_process_group()


def kept_bytes(tensor: torch.Tensor) -> int:
    """Return the size in bytes of this process's part of a tensor."""
    part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return part.numel() * part.element_size()


def train_in_two(folder: str) -> None:
    """Train in two processes, forked where possible so that they need no imports."""
    work = partial(train_a_step, folder=folder, config=ODD, world=2)
    method = "fork" if sys.platform == "linux" else "spawn"
    torch.multiprocessing.start_processes(work, nprocs=2, start_method=method)


@pytest.mark.thorough
def test_memory_of_two_processes_agrees_with_the_formula_to_the_byte(tmp_path: Path) -> None:
    code = f"from {__name__} import train_in_two; train_in_two({str(tmp_path)!r})"  # pytest has threads, so do not fork
    done = ended(begin("-c", code, folder=Path(__file__).parents[2]))
    assert done.returncode == 0, done.stderr
    shapes = size_of(ODD, V).shapes
    for rank in range(2):
        assert json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) == vars(sharded(shapes, 2, rank))


@pytest.mark.parametrize("processes", [1, 2, 3, 7, 64])
def test_all_shards_together_are_the_model(processes: int) -> None:
    size = size_of(ODD, V)
    parts = [sharded(size.shapes, processes, rank) for rank in range(processes)]
    assert sum(part.weights for part in parts) == sum(part.gradients for part in parts) == 4 * size.parameters
    steps = 4 * len(size.shapes) * processes
    assert sum(part.state for part in parts) == 8 * size.parameters + steps
    assert max(parts, key=lambda part: part.weights) == parts[0]


def test_sizes_equal_the_models_and_published_ones() -> None:
    model = build_model(ODD, V)
    size = size_of(ODD, V)
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert len(size.blocks) == 3
    inside = {name for name, _ in model.named_parameters() if ".blocks." in name}
    assert size.parameters_outside_blocks == sum(
        p.numel() for name, p in model.named_parameters() if name not in inside
    )
    large = size_of(LARGE, 128_256)
    assert large.parameters == 70_553_706_496  # Llama 3 70B: Dubey et al. 2024
    # Nearly all arithmetic is 6 FLOP per non-embedding parameter and token (Kaplan et al. 2020), the rest is attention.
    attention = 12 * 80 * 8192 * 8192
    assert flops_per_token(large, recomputed=False) == 6 * (large.parameters - 128_256 * 8192 - 161 * 8192) + attention


def test_saved_activations_follow_korthikanti_without_dropout() -> None:
    s = 2048  # their section 4: bytes of a layer are s b h (34 + 5 a s / h)
    b = 1
    h = 12288
    a = 96
    theirs = s * b * h * (34 + 5 * a * s / h)
    dropout = 2 * s * b * h
    weights = 5 * a * s * s * b
    ours = block_activation_bytes(ModelConfig(width=h, heads=a, hidden=4 * h, activation="gelu", context=s))
    assert s * b * ours == theirs - dropout - weights
    size = size_of(ODD, V)
    assert activation_bytes(size, 7, recomputed=False) == 7 * (3 * size.activation_bytes_per_token + 4 * 20 + 16 * V)
    assert activation_bytes(size, 7, recomputed=True) == 7 * (
        3 * 2 * 20 + size.activation_bytes_per_token + 4 * 20 + 16 * V
    )
    many = 1 << 30  # tokens, whose logits are computed in chunks
    assert (
        activation_bytes(size, many, recomputed=False)
        == many * (3 * size.activation_bytes_per_token + 4 * 20) + 16 * MOST_LOSS_LOGITS
    )


def by_hand() -> ModelSize:
    """Return a model small enough to calculate by hand."""
    return ModelSize(
        ((6, 2), (4, 2)),
        blocks=(8,),
        parameters_outside_blocks=12,
        forward_flops=50,
        activation_bytes_per_token=16,
        context=2,
        layers=1,
        width=2,
        vocab_size=3,
    )


def test_a_step_is_calculated_by_hand() -> None:
    found = estimate(by_hand(), PLAIN, 4, reach=0.5, rows=3)
    assert vars(found.kept) == {"weights": 4 * 6, "gradients": 4 * 6, "state": 8 * 6 + 8}  # rows 2 of 6 and 1 of 4
    assert found.gathered == 2 * (12 + 2 * 8)
    assert found.whole_gradients == 6 * 12 + 4 * 3 * 2
    assert found.activations == 6 * (16 + 4 * 2 + 16 * 3)
    assert (found.fits, found.recomputed, found.tokens_per_step) == (True, False, 24)
    assert found.memory == 24 + 24 + 56 + 56 + 96 + 432
    assert found.traffic == 3 / 4 * (2 * (2 * 8 + 12) + 4 * 20)
    assert found.compute == 6 * 150 / 50
    assert found.communication == found.traffic / 5
    assert found.update == 28 * 5 / 10
    assert found.best == 24 / (max(found.compute, found.communication) + 14)
    assert found.worst == 24 / (found.compute + found.communication + 14)


def test_rings_use_all_network_cards_of_a_node() -> None:
    gpu = replace(PLAIN, network=0.5)  # of 8 GPUs in a node, with links of 5
    assert [ring_speed(gpu, gpus) for gpus in (1, 8, 16, 64)] == [5, 5, 4, 4]
    assert ring_speed(gpu, 12) == 3  # two nodes of 6
    assert ring_speed(replace(gpu, network=2.0), 16) == 5  # the link is slower
    assert estimate(by_hand(), gpu, 16, 0.5).communication == traffic(by_hand(), 16) / 4


def test_rows_fill_memory_and_blocks_are_recomputed_only_if_necessary() -> None:
    size = replace(by_hand(), layers=5)
    for memory, rows, recomputed, fits in (
        (10**6, 64, False, True),
        (1510, 4, False, True),
        (600, 1, False, True),
        (500, 1, True, True),
        (480, 1, True, False),
    ):
        gpu = Gpu(100.0, float(memory), 10.0, 5.0, 2.0, 8, "")
        found = estimate(size, gpu, 4, 0.5)
        assert (found.rows, found.recomputed, found.fits) == (rows, recomputed, fits), memory
        assert not fits or found.memory <= 0.9 * memory
    assert flops_per_token(size, recomputed=True) == 4 * 50


def counted(folder: Path, *words: str) -> dict[str, Any]:
    done = here("count", "serve", "--model.layers", "3", *words, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_command_prints_the_estimate(tmp_path: Path) -> None:
    small, large = counted(tmp_path, "--gpus", "8,1024", "--rows", "5")["estimates"]
    assert (small["gpus"], large["gpus"], small["rows"]) == (8, 1024, 5)
    assert small["kept"]["weights"] > large["kept"]["weights"]
    (changed,) = counted(tmp_path, "--gpus", "8", "--gpu", "a100", "--peak", "624", "--rows", "5")["estimates"]
    assert changed["compute"] == pytest.approx(small["compute"] * GPUS["h100"].peak / 624e12)
    shown = here("count", "serve", "--gpus", "8", "--tokens", "3", folder=tmp_path)
    assert "days for 3 B" in shown.stdout
    assert "estimates" not in counted(tmp_path)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["serve", "--gpu", "h100"], "--gpu was given without --gpus"),
        (["serve", "--gpus", "8", "--gpu", "h10"], "unknown GPU 'h10'"),
        (["serve", "--gpus", "8,x"], "--gpus 8,x is not a list"),
        (["serve", "--gpus", "8", "--reach", "1.5"], "--reach 1.5 is not allowed"),
        (["serve", "--gpus", "8", "--rows", "0"], "--rows 0 is not allowed"),
        (["translate-modern", "--gpus", "8"], "does not support encoder-decoders"),
    ],
)
def test_invalid_arguments_are_refused(words: list[str], problem: str, tmp_path: Path) -> None:
    done = here("count", *words, folder=tmp_path)
    assert done.returncode == 2
    assert problem in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 2
