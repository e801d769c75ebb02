"""Estimate the memory and time of training on many GPUs (`glass count --gpus`)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glassformer.base.config import Config
from glassformer.base.errors import GlassError, nearest

if TYPE_CHECKING:
    from glassformer.training.many_gpus import Estimate, Gpu

GPU_OPTIONS = {"peak": 1e12, "memory": 1e9, "link": 1e9, "network": 1e9}
"""Options that override a specification of the GPU -> unit of the option, in FLOP/s, bytes or bytes per second."""
DEFAULT_UTILIZATION = 0.5
"""Default fraction of the peak FLOP/s that training achieves."""
GIGA = 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--gpus` and the options of its estimates."""
    group = parser.add_argument_group("estimates for many GPUs (FSDP2, AdamW, bfloat16; nothing is measured)")
    group.add_argument("--gpus", metavar="N,N,...", help="numbers of GPUs, such as 8,64,1024")
    group.add_argument(
        "--gpu",
        metavar="NAME",
        help="a100, h100 (default), h200 or b200; the next four options override its specifications",
    )
    group.add_argument("--peak", type=float, metavar="TFLOPS", help="peak of dense bfloat16 matrix multiplications")
    group.add_argument("--memory", type=float, metavar="GB", help="memory of each GPU")
    group.add_argument("--link", type=float, metavar="GB/S", help="bandwidth between GPUs of a node, one way")
    group.add_argument("--network", type=float, metavar="GB/S", help="bandwidth between nodes, one way, for each GPU")
    group.add_argument(
        "--reach",
        type=float,
        metavar="FRACTION",
        help=f"fraction of the peak that training achieves (default: {DEFAULT_UTILIZATION})",
    )
    group.add_argument(
        "--rows", type=int, metavar="N", help="rows in the micro-batch of each GPU (default: as many as fit, up to 64)"
    )
    group.add_argument(
        "--tokens", type=float, metavar="BILLIONS", help="training tokens, to estimate the days of training"
    )


def estimates(
    arguments: argparse.Namespace, config: Config, sizes: tuple[int, int | None, int | None]
) -> tuple[str, list[Estimate]]:
    """Return a description of the GPU, and an estimate for each number of GPUs; both are empty without `--gpus`.

    Args:
        arguments: arguments of the command.
        config: settings of the run.
        sizes: vocabulary size, size of a separate source vocabulary or None, number of labels or None.

    Raises:
        GlassError: an option has a value that is not allowed or was given without `--gpus`, or the model is an
            encoder-decoder.
    """
    from glassformer.training.many_gpus import estimate, size_of

    if arguments.gpus is None:
        for name in ("gpu", *GPU_OPTIONS, "reach", "rows", "tokens"):
            if getattr(arguments, name) is not None:
                raise GlassError(f"--{name} was given without --gpus", "Give the numbers of GPUs: --gpus 8,64")
        return "", []
    _refuse_impossible(arguments)
    if config.model.family == "encoder-decoder":
        raise GlassError("--gpus does not support encoder-decoders", "Use a decoder or an encoder.")
    size = size_of(config.model, sizes[0], sizes[2])
    name, gpu = _gpu(arguments)
    reach = DEFAULT_UTILIZATION if arguments.reach is None else arguments.reach
    description = (
        f"{name}: {gpu.peak / 1e12:,.0f} TFLOP/s, of which {reach:.0%} is achieved; {gpu.memory / GIGA:,.0f} GB; "
        f"{gpu.link / GIGA:,.0f} GB/s within a node of {gpu.node}, "
        f"{gpu.network / GIGA:,.0f} GB/s for each GPU between nodes ({gpu.source})"
    )
    return description, [estimate(size, gpu, number, reach, arguments.rows) for number in _numbers(arguments.gpus)]


def _gpu(arguments: argparse.Namespace) -> tuple[str, Gpu]:
    from glassformer.training.many_gpus import GPUS

    name = arguments.gpu or "h100"
    if name not in GPUS:
        raise GlassError(f"unknown GPU {name!r}", nearest(name, GPUS))
    overrides = {option: getattr(arguments, option) for option in GPU_OPTIONS if getattr(arguments, option) is not None}
    if not overrides:
        return name, GPUS[name]
    specifications = {option: value * GPU_OPTIONS[option] for option, value in overrides.items()}
    options = ", ".join(f"--{option} {value:g}" for option, value in overrides.items())
    return name, replace(GPUS[name], **specifications, source=f"{GPUS[name].source}; changed by {options}")


def _refuse_impossible(arguments: argparse.Namespace) -> None:
    for name in (*GPU_OPTIONS, "reach", "rows", "tokens"):
        value = getattr(arguments, name)
        if value is not None and not (0 < value < float("inf") and (name != "reach" or value <= 1)):
            allowed = "a fraction above 0, up to 1" if name == "reach" else "a number above 0"
            raise GlassError(f"--{name} {value:g} is not allowed", f"Give {allowed}.")


def _numbers(text: str) -> list[int]:
    numbers = [int(item) if item.strip().isdecimal() else 0 for item in text.split(",")]
    if not all(0 < number <= 1_000_000 for number in numbers):
        raise GlassError(
            f"--gpus {text} is not a list of numbers of GPUs",
            "Give numbers from 1 to 1,000,000, separated by commas: --gpus 8,64,1024",
        )
    return numbers


def table(description: str, gpu_estimates: Sequence[Estimate], billions: float | None) -> Iterator[str]:
    """Yield the lines of a table with a column for each estimate, and the notes below it.

    Args:
        description: description of the GPU.
        gpu_estimates: one estimate for each number of GPUs.
        billions: training tokens in billions, for a row of days; None: no such row.
    """
    yield f"\nEstimated sharded training with AdamW in bfloat16, on {description}:"
    rows: list[tuple[str, list[str]]] = [
        ("GPUs", [f"{each.gpus:,}" for each in gpu_estimates]),
        ("GB per GPU: weights", [_gb(each.kept.weights) for each in gpu_estimates]),
        ("  gradients", [_gb(each.kept.gradients) for each in gpu_estimates]),
        ("  optimizer state", [_gb(each.kept.state) for each in gpu_estimates]),
        ("  gathered weights", [_gb(each.gathered) for each in gpu_estimates]),
        ("  unsharded gradients", [_gb(each.whole_gradients) for each in gpu_estimates]),
        ("  activations", [_gb(each.activations) for each in gpu_estimates]),
        ("  all", [_gb(each.memory) for each in gpu_estimates]),
        ("fits", ["yes" if each.fits else "no" for each in gpu_estimates]),
        ("blocks recomputed", ["yes" if each.recomputed else "no" for each in gpu_estimates]),
        ("micro-batch rows", [str(each.rows) for each in gpu_estimates]),
        ("tokens per step", [f"{each.tokens_per_step:,}" for each in gpu_estimates]),
        ("GB sent by each GPU", [_gb(each.traffic) for each in gpu_estimates]),
        ("compute time (s)", [f"{each.compute:.3g}" for each in gpu_estimates]),
        ("communication time (s)", [f"{each.communication:.3g}" for each in gpu_estimates]),
        ("tokens/s at best", [_rate(each, each.best) for each in gpu_estimates]),
        ("  at worst", [_rate(each, each.worst) for each in gpu_estimates]),
    ]
    if billions is not None:
        days = [(GIGA * billions / each.best / 86400, GIGA * billions / each.worst / 86400) for each in gpu_estimates]
        spans = [f"{best:,.3g} to {worst:,.3g}" for best, worst in days]
        rows.append(
            (
                f"days for {billions:,g} B",
                [span if each.fits else "-" for span, each in zip(spans, gpu_estimates, strict=True)],
            )
        )
    for name, cells in rows:
        yield f"{name:<22}" + "".join(f"{cell:>20}" for cell in cells)
    yield (
        "At best, communication overlaps completely with computation; at worst, not at all. "
        "Latency and data loading are ignored."
    )
    if any(each.recomputed for each in gpu_estimates):
        yield "To recompute blocks (activation checkpointing), set train.checkpoint_blocks = true."


def facts(gpu_estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Return the estimates for `--json`; empty if there are none."""
    return {"estimates": [each.facts() for each in gpu_estimates]} if gpu_estimates else {}


def _gb(number: float) -> str:
    return f"{number / GIGA:,.2f}"


def _rate(estimate: Estimate, rate: float) -> str:
    return f"{rate:,.0f}" if estimate.fits else "-"
