"""Training steps of one architecture by size and context, also as a fraction of the hardware's peak speed.

The peak speed, that of a multiplication of large matrices, is measured in the same turns as the steps, so that each
fraction refers to a peak measured within seconds of the step.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glassformer.base.config import Config
from glassformer.training.memory import configure_allocator
from peers.machine import matrix_speed, precisions
from peers.models import (
    DTYPES,
    Shape,
    Step,
    TorchLayers,
    hugging_face,
    nanogpt,
    our_masked_step,
    our_step,
    their_masked_step,
    their_step,
)
from peers.rows import CLOCKS, Clock, Options, Row, take_turns

SHAPES = {
    "0.8 M": Shape(layers=4, heads=4, width=128, context=64, batch=12),
    "10.65 M": Shape(layers=6, heads=6, width=384, context=256, batch=64),
    "10.65 M, context 1024": Shape(layers=6, heads=6, width=384, context=1024, batch=8),
    "1.4 M, vocabulary 8,000": Shape(layers=2, heads=4, width=128, context=96, batch=64, vocabulary=8000),
}
MASKED = Shape(layers=2, heads=4, width=128, context=96, batch=64, vocabulary=8000)
GPU_SHAPES = {"124 M": Shape(layers=12, heads=12, width=768, context=1024, batch=12, vocabulary=50304)}
"""Additional shapes on a GPU: the smallest GPT-2."""
QUICK_MASKED = Shape(layers=2, heads=2, width=32, context=32, batch=4)
QUICK = {"0.03 M": Shape(layers=2, heads=2, width=32, context=32, batch=4)}
PEAK = 1024  # side of the matrices whose multiplication gives the peak
GPU_PEAK = 8192  # on a GPU


def measure(options: Options) -> Iterator[Row]:
    """Yield a row for masked training, which needs logits at 15 % of the positions, and a row for each shape."""
    configure_allocator(Config())  # as `glass train` does; it applies to all libraries here
    yield _masked_row(QUICK_MASKED if options.quick else MASKED, options)
    shapes = SHAPES if options.device == "cpu" else {**SHAPES, **GPU_SHAPES}
    for name, shape in (QUICK if options.quick else shapes).items():
        torch.manual_seed(0)
        few = 2 if options.quick else max(1, 2_000_000_000 // shape.flops)  # several small steps are timed together
        steps = {library: partial(_several, step, few) for library, step in _contenders(shape, options).items()}
        clock = CLOCKS[options.clock]
        found: dict[str, list[float]] = {f"peak {name}": [] for name in DTYPES}
        peak = {
            f"peak {name}": partial(_note_peak, found[f"peak {name}"], dtype, clock, options.device)
            for name, dtype in DTYPES.items()
        }
        seconds = take_turns({**steps, **peak}, options.repeats, clock)
        values = {library: [few * shape.tokens / each for each in seconds[library]] for library in steps}
        yield Row(
            "training step",
            f"{name}: {shape.batch} x {shape.context}",
            "tokens/s",
            values,
            facts=_facts(shape, values, {library: each[1:] for library, each in found.items()}),
        )


def _masked_row(shape: Shape, options: Options) -> Row:
    torch.manual_seed(0)
    steps: dict[str, Step] = {}
    for precision in precisions(CLOCKS[options.clock], options.device):
        steps[f"ours {precision}"] = our_masked_step(shape, precision, options.device)
        steps[f"Hugging Face {precision}"] = their_masked_step(shape, precision, options.device)
    seconds = take_turns(steps, options.repeats, CLOCKS[options.clock])
    values = {library: [shape.tokens / each for each in times] for library, times in seconds.items()}
    size = f"{shape.layers} layers x {shape.width}, vocabulary {shape.vocabulary:,}"
    return Row("masked training step", f"{size}: {shape.batch} x {shape.context}", "tokens/s", values)


def _several(step: Step, count: int) -> None:
    for _ in range(count):
        step()


def _note_peak(found: list[float], dtype: torch.dtype, clock: Clock, device: str) -> None:
    found.append(matrix_speed(dtype, clock, PEAK if device == "cpu" else GPU_PEAK, device=device))


def _contenders(shape: Shape, options: Options) -> dict[str, Step]:
    """Return the steps of all libraries in the precisions to measure; nanoGPT only in its script's precision."""
    steps: dict[str, Step] = {}
    if options.compile:
        steps["ours bf16 compiled"] = our_step(shape, "bf16", options.device, {"compile": True})
    for precision in precisions(CLOCKS[options.clock], options.device):
        steps[f"ours {precision}"] = our_step(shape, precision, options.device, {})
        gpt2 = hugging_face(shape)
        layers = TorchLayers(shape)
        steps[f"Hugging Face {precision}"] = their_step(
            gpt2, partial(_gpt2_loss, gpt2), shape, precision, options.device
        )
        layers_loss = partial(_layers_loss, layers)
        steps[f"nn.Transformer {precision}"] = their_step(layers, layers_loss, shape, precision, options.device)
    if options.nanogpt is not None:
        model = nanogpt(shape, options.nanogpt)
        precision = "fp32" if options.device == "cpu" else "bf16"
        nanogpt_loss = partial(_nanogpt_loss, model)
        steps[f"nanoGPT {precision}"] = their_step(model, nanogpt_loss, shape, precision, options.device)
    return steps


def _gpt2_loss(model: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    return _layers_loss(lambda ids: model(ids, use_cache=False).logits, inputs, targets)


def _layers_loss(model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(model(inputs).float().flatten(0, 1), targets.flatten())


def _nanogpt_loss(model: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    loss: Tensor = model(inputs, targets)[1]
    return loss


def _facts(shape: Shape, values: dict[str, list[float]], peak: dict[str, list[float]]) -> dict[str, Any]:
    """Return seconds per step and the fraction of the peak in the same precision, as medians over turns."""
    each = shape.flops / shape.tokens
    shares = {}
    for library, speeds in values.items():
        best = peak["peak bf16" if "bf16" in library else "peak fp32"]
        shares[library] = round(
            statistics.median(each * speed / top for speed, top in zip(speeds, best, strict=True)), 3
        )
    seconds = {library: float(f"{shape.tokens / statistics.median(speeds):.4g}") for library, speeds in values.items()}
    return {
        "share_of_peak": shares,
        "seconds_of_a_step": seconds,
        "flops_of_a_step": shape.flops,
        "peak_gflops": {library: round(statistics.median(speeds) / 1e9, 1) for library, speeds in peak.items()},
    }
