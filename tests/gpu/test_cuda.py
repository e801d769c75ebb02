"""Tests on a GPU: results equal those of the CPU, training resumes bit for bit, and a batch may exceed the memory.

These tests run only with `GLASS_TEST_GPU=1 pytest -n 0 tests/gpu`. Without this variable, tests see no GPU.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.generation.beam import beam_search
from glassformer.generation.decoding import generate
from glassformer.model.transformer import Decoder, EncoderDecoder, Model
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.losses import linear_cross_entropy
from glassformer.training.loop import compute_gradients, train
from glassformer.training.validation import loss_on_rows
from tests.property.models import as_if_trained, kinds, named, tiny, tokens
from tests.property.trainers import last_weights, resumed, same, small_trainer, stop_after

FAMILIES = ("decoder", "encoder", "encoder-decoder")
CASES = [(family, kind) for family in FAMILIES for kind in kinds(family)]
REAL = torch.tensor([[True] * 17, [True] * 4 + [False] * 13, [True] * 9 + [False] * 8])

pytestmark = pytest.mark.skipif(
    "GLASS_TEST_GPU" not in os.environ or not torch.cuda.is_available(),
    reason="this system has no GPU for tests, or GLASS_TEST_GPU is not set",
)


def on_both(config: ModelConfig) -> tuple[Model, Model]:
    """Return the same model on the CPU and on the GPU."""
    model = as_if_trained(config)
    return model, copy.deepcopy(model).to("cuda")


def logits(model: Model) -> Tensor:
    """Return (3, T, V) logits of fixed ids; the input of an encoder has padding."""
    device = next(model.parameters()).device
    ids = tokens(3, 17).to(device)
    if isinstance(model, EncoderDecoder):
        return model(ids, tokens(3, 13, seed=1).to(device), REAL.to(device))
    return model(ids) if isinstance(model, Decoder) else model(ids, REAL.to(device))


@pytest.mark.parametrize(("family", "kind"), CASES, ids=named)
def test_logits_and_gradients_equal_those_of_the_cpu(family: str, kind: dict[str, Any]) -> None:
    """Cases include all position encodings, grouped-query attention, and attention layers with all heads removed."""
    found = []
    for model in on_both(tiny(family=family, **kind)):
        model.requires_grad_(True)
        out = logits(model)
        out.square().mean().backward()
        gradients = [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]
        found.append((out.detach().cpu(), gradients))
    (cpu_out, cpu_gradients), (gpu_out, gpu_gradients) = found
    torch.testing.assert_close(gpu_out, cpu_out, rtol=0, atol=1e-5)
    assert len(gpu_gradients) == len(cpu_gradients)
    for own, other in zip(gpu_gradients, cpu_gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_equal_those_of_the_cpu(family: str, temperature: float) -> None:
    """Decode greedily, by sampling with seeds, and by beam search, from prompts of different lengths."""
    cpu, gpu = on_both(tiny(family=family, positions="rotary", kv_heads=2))
    prompts = [tokens(1, length, seed=length)[0].tolist() for length in (3, 7, 11)]
    settings = SampleConfig(tokens=12, temperature=temperature)
    start = [1] if family == "encoder-decoder" else []

    def written(model: Model) -> list[list[int]]:
        assert isinstance(model, Decoder | EncoderDecoder)
        rows: list[list[int]] = [[] for _ in prompts]
        for step in generate(model, prompts, settings, seeds=[1, 2, 3], start=start):
            for row, token in zip(step.rows, step.tokens, strict=True):
                rows[row].append(token)
        return rows

    assert written(gpu) == written(cpu)
    if temperature == 0:
        assert isinstance(cpu, Decoder | EncoderDecoder)
        assert isinstance(gpu, Decoder | EncoderDecoder)
        beams = SampleConfig(tokens=12, beams=4, temperature=0)
        found = [
            [hypotheses[0].tokens for hypotheses in beam_search(model, prompts, beams, start=start)]
            for model in (cpu, gpu)
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("step", [5, 13])
def test_a_resumed_run_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path, precision: str, step: int) -> None:
    """Train with dropout, whose random numbers come from the GPU's generator."""
    changes = {"train__device": "cuda", "train__precision": precision}
    straight = small_trainer(tmp_path, "straight", **changes)
    assert next(straight.model.parameters()).device.type == "cuda"
    train(straight)
    stop_after(small_trainer(tmp_path, "run", **changes), step)
    again = resumed(tmp_path)
    assert train(again) is not None
    assert same(last_weights(straight), last_weights(again))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_chunked_loss_equals_the_loss_of_all_logits(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients agree as well, within the rounding error of the precision."""
    monkeypatch.setattr("glassformer.tasks.losses.MOST_LOSS_LOGITS", 31 * 40)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(101, 22, generator=generator).cuda().requires_grad_(True)  # (N, D)
    matrix = torch.randn(31, 22, generator=generator).cuda().requires_grad_(True)  # (V, D)
    targets = torch.randint(0, 31, (101,), generator=generator).cuda()  # (N)
    with torch.autocast("cuda", dtype, enabled=precision == "bf16"):
        loss = linear_cross_entropy(x, matrix, None, targets, 101)
    by_chunks = torch.autograd.grad(loss, [x, matrix])
    rounded = [each.detach().to(dtype).double().requires_grad_(True) for each in (x, matrix)]
    reference = cross_entropy(rounded[0] @ rounded[1].T, targets)
    of_all = torch.autograd.grad(reference, rounded)
    limit = 1e-5 if precision == "fp32" else 1e-2
    assert abs(float(loss) - float(reference)) < limit
    for own, other in zip(by_chunks, of_all, strict=True):
        assert (own - other).norm() / other.norm() < limit


def test_a_batch_that_exceeds_memory_is_halved(tmp_path: Path) -> None:
    """Make GPU memory run out; the gradients still equal those of the whole batch."""
    changes: dict[str, Any] = {"train__device": "cuda", "train__precision": "fp32", "train__batch": 512}
    changes |= {"model__width": 224, "model__context": 128, "model__dropout_residual": 0.0}
    roomy = small_trainer(tmp_path, "roomy", **changes)
    torch.cuda.reset_peak_memory_stats()
    whole = compute_gradients(roomy.stepper, 0)
    expected = [parameter.grad.cpu() for parameter in roomy.model.parameters() if parameter.grad is not None]
    peak = torch.cuda.max_memory_allocated()
    del roomy
    torch.cuda.empty_cache()

    narrow = small_trainer(tmp_path, "narrow", **changes)
    with memory_limit(int(0.7 * peak)):
        halved = compute_gradients(narrow.stepper, 0)
    assert narrow.stepper.oom_retries.count > 0
    assert halved.loss == pytest.approx(whole.loss, rel=1e-5)
    found = [parameter.grad.cpu() for parameter in narrow.model.parameters() if parameter.grad is not None]
    for own, other in zip(found, expected, strict=True):
        assert (own - other).norm() / other.norm() < 1e-4


@contextmanager
def memory_limit(most: int) -> Iterator[None]:
    """Limit this process to `most` bytes of GPU memory inside the context."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(most / torch.cuda.get_device_properties(0).total_memory)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_run_trained_on_a_gpu_opens_on_the_cpu(tmp_path: Path) -> None:
    """The loss on the CPU agrees with the loss that was measured on the GPU."""
    trainer = small_trainer(tmp_path, "run", train__device="cuda", train__precision="fp32", train__steps=6)
    train(trainer)
    opened = OpenedRun.load(tmp_path / "run", device="cpu")
    assert opened.loss is not None
    assert loss_on_rows(opened.model, opened.held_out()).loss == pytest.approx(opened.loss, abs=1e-4)
