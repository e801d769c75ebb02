"""Measure the cost of a forward and backward pass in seconds and bytes, and fit its scaling exponents.

Time is measured on one thread. Memory is the total size of the tensors that autograd saves for the backward pass, with
each storage counted once and without parameters: this part of training memory grows with the length of the text. An
exponent is the slope of a least-squares line through the logarithms, fitted to the largest sizes only, where terms of
lower order matter less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.experiments.pictures import lines_picture
from glassformer.experiments.report import StudyReport
from glassformer.experiments.study import COST_QUESTION
from glassformer.model.attention import Mask, attend
from glassformer.model.build import build_model
from glassformer.model.threads import threads
from glassformer.model.transformer import FeedForward

SIZES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"T": (128, 256, 512, 1024, 2048), "D": (64, 128, 256, 512, 1024), "L": (1, 2, 4, 8, 16)}
)
"""Sizes: length T, width D and number of layers L. While one size varies, the other two have their values in `HELD`."""
HELD = MappingProxyType({"T": 256, "D": 64, "L": 1})
HEADS = 4
VOCABULARY = 64
FITTED = 4
"""Number of the largest sizes to which the power law is fitted."""
REPEATS = 5
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantile of Student's t distribution with 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class MeasuredPass:
    """A repeatable forward pass, and the module whose parameters it uses, if any."""

    forward: Callable[[], Tensor]
    module: nn.Module | None = None


@dataclass(frozen=True)
class Fit:
    """A fitted power law y = scale x^power.

    Attributes:
        power: slope of log y against log x.
        margin: half the width of the 95 % confidence interval of `power`; None for a fit to two points.
        scale: y at x = 1.
    """

    power: float
    margin: float | None
    scale: float

    def __str__(self) -> str:
        return f"{self.power:.2f}" if self.margin is None else f"{self.power:.2f} ± {self.margin:.2f}"


@dataclass(frozen=True)
class Law:
    """Measured cost of one component of the model as one size grows.

    Attributes:
        part: name of the measured component.
        size: the size that grew: T, D or L.
        theory: expected exponents of time and of memory.
        sizes: values of the size.
        seconds: seconds per forward and backward pass at each size.
        saved_bytes: bytes saved for the backward pass at each size.
    """

    part: str
    size: str
    theory: tuple[str, str]
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    saved_bytes: tuple[int, ...]

    @property
    def time(self) -> Fit:
        """Return the power law of time, fitted to the seconds at the largest sizes."""
        return fit_power(self.sizes[-FITTED:], self.seconds[-FITTED:])

    @property
    def memory(self) -> Fit:
        """Return the power law of memory, fitted to the saved bytes at the largest sizes."""
        return fit_power(self.sizes[-FITTED:], self.saved_bytes[-FITTED:])


def fit_power(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Fit a power law by least squares on the logarithms, with a 95 % confidence interval of the exponent."""
    u = np.log(np.asarray(x, dtype=float))  # (n)
    v = np.log(np.asarray(y, dtype=float))  # (n)
    n = len(u)
    spread = float(((u - u.mean()) ** 2).sum())
    slope = float(((u - u.mean()) * (v - v.mean())).sum() / spread)
    residuals = v - v.mean() - slope * (u - u.mean())  # (n)
    scale = math.exp(float(v.mean() - slope * u.mean()))
    if n < 3:
        return Fit(slope, None, scale)
    margin = STUDENT[min(n - 2, len(STUDENT)) - 1] * math.sqrt(float((residuals**2).sum()) / (n - 2) / spread)
    return Fit(slope, margin, scale)


def attention_pass(sizes: Mapping[str, int], explicit: bool) -> MeasuredPass:
    """Return the forward pass of causal attention over T positions, without projections.

    Attention is computed by the fused kernel or, if `explicit`, step by step.
    """
    T = sizes["T"]
    K = sizes["D"] // HEADS
    q, k, v = (torch.randn(1, HEADS, T, K, requires_grad=True) for _ in range(3))  # (1, H, T, K)
    return MeasuredPass(lambda: attend(q, k, v, Mask(is_causal=True), explicit=explicit)[0])


def feedforward_pass(sizes: Mapping[str, int]) -> MeasuredPass:
    """Return the forward pass of one feed-forward layer, F = 4 D, on random inputs at T positions."""
    layer = FeedForward(_config(sizes))
    x = torch.randn(1, sizes["T"], sizes["D"], requires_grad=True)  # (1, T, D)
    return MeasuredPass(lambda: layer(x), layer)


def model_pass(sizes: Mapping[str, int]) -> MeasuredPass:
    """Return the forward pass of a whole decoder on one row of T random tokens."""
    model = build_model(_config(sizes), VOCABULARY)
    tokens = torch.randint(0, VOCABULARY, (1, sizes["T"]))  # (1, T)
    return MeasuredPass(lambda: model(tokens), model)


def _config(sizes: Mapping[str, int]) -> ModelConfig:
    return ModelConfig(context=sizes["T"], width=sizes["D"], layers=sizes["L"], heads=HEADS)


PLANS: tuple[tuple[str, Callable[[Mapping[str, int]], MeasuredPass], Mapping[str, tuple[str, str]]], ...] = (
    ("attention, fused", lambda s: attention_pass(s, False), {"T": ("2", "1"), "D": ("1", "1")}),
    ("attention, step by step", lambda s: attention_pass(s, True), {"T": ("2", "2"), "D": ("0 to 1", "0 to 1")}),
    ("feed-forward", feedforward_pass, {"T": ("1", "1"), "D": ("2", "1")}),
    ("whole model", model_pass, {"T": ("1 to 2", "1"), "D": ("1 to 2", "1"), "L": ("1", "1")}),
)
"""(component, function that makes its forward pass, expected exponents of time and memory by size). With F = 4 D, O(T D
F) is O(T D^2)."""


def measure_costs(sizes: Mapping[str, Sequence[int]], note: Callable[[str], None]) -> list[Law]:
    """Measure every component of `PLANS` on the CPU with one thread; one size varies at a time, see `HELD`."""
    laws = []
    with threads(1):
        for part, make_pass, theories in PLANS:
            for size, theory in theories.items():
                note(f"measuring {part} at several values of {size}")
                measured_passes = [make_pass({**HELD, size: value}) for value in sizes[size]]
                saved_bytes = tuple(saved_bytes_of(measured_pass) for measured_pass in measured_passes)
                laws.append(Law(part, size, theory, tuple(sizes[size]), _seconds(measured_passes), saved_bytes))
    return laws


def _seconds(measured_passes: Sequence[MeasuredPass]) -> tuple[float, ...]:
    """Return the seconds of each forward and backward pass in its fastest round.

    The passes take turns in every round, so that other programs on the machine affect all of them alike.
    """
    best = [math.inf] * len(measured_passes)
    for _ in range(REPEATS + 1):  # the first round warms up
        for number, measured_pass in enumerate(measured_passes):
            passes = 0
            began = time.perf_counter()
            while passes == 0 or time.perf_counter() - began < 0.01:
                output = measured_pass.forward()
                output.backward(torch.ones_like(output))
                passes += 1
            best[number] = min(best[number], (time.perf_counter() - began) / passes)
    return tuple(best)


def saved_bytes_of(measured_pass: MeasuredPass) -> int:
    """Return the bytes that autograd saves in a forward pass, without parameters, each storage counted once."""
    parameters = measured_pass.module.parameters() if measured_pass.module is not None else ()
    weights = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    storages: dict[int, int] = {}

    def record_storage(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record_storage, lambda tensor: tensor):
        output = measured_pass.forward()  # kept alive until all storages are counted, so that no address is reused
    del output
    return sum(storages.values())


def refuse_used_folder(folder: Path) -> None:
    """Check that a folder is new, is empty, or contains only an earlier cost report.

    Raises:
        GlassError: the folder contains other files, or the path is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise GlassError(f"{folder} is a file, not a folder", "Choose another --out.")
    report_files = {"report.md", "report.html", "time.svg", "memory.svg"}
    if folder.exists() and (
        name := next((path.name for path in folder.iterdir() if path.name not in report_files), None)
    ):
        raise GlassError(f"{folder} is not empty: it contains {name}", "Choose another --out, or empty that folder.")


def cost_report(laws: Sequence[Law], folder: Path) -> StudyReport:
    """Return a report of the measured and expected exponents, with curves against T, to be written to `folder`."""
    header = ["part", "against", "time ~", "theory", "memory ~", "theory", "largest", "milliseconds", "MB saved"]
    rows = [
        [
            law.part,
            law.size,
            f"{law.size}^{law.time}",
            law.theory[0],
            f"{law.size}^{law.memory}",
            law.theory[1],
            f"{law.size} = {law.sizes[-1]:,}",
            f"{1000 * law.seconds[-1]:.2f}",
            f"{law.saved_bytes[-1] / 1e6:.2f}",
        ]
        for law in laws
    ]
    pictures = {
        "time.svg": _picture(laws, "seconds", lambda law: law.seconds, lambda law: law.time),
        "memory.svg": _picture(laws, "bytes saved", lambda law: law.saved_bytes, lambda law: law.memory),
    }
    fixed_sizes = ", ".join(f"{size} = {value}" for size, value in HELD.items())
    notes = [
        "Theory: attention takes O(T^2 D) operations, a feed-forward layer O(T D F); here F = 4 D.",
        f"Exponents with 95 % confidence intervals, fitted to the {FITTED} largest sizes. Other sizes are fixed: "
        f"{fixed_sizes}, {HEADS} heads, one row, float32, one thread.",
        "The fused kernel never stores the T x T weights, so its memory grows with T, but its time grows with T^2.",
        "Where theory gives two exponents, the cost has terms of both; the larger dominates as the size grows.",
    ]
    return StudyReport(
        folder=folder,
        fields={"laws": _law_fields(laws)},
        title="Cost of a forward and backward pass",
        paragraphs=[COST_QUESTION],
        header=header,
        rows=rows,
        pictures=pictures,
        notes=notes,
    )


def _picture(
    laws: Sequence[Law], name: str, measured: Callable[[Law], Sequence[float]], fit: Callable[[Law], Fit]
) -> str:
    lines = []
    for law in (law for law in laws if law.size == "T"):
        first = len(law.sizes) - FITTED
        fitted = [
            math.nan if number < first else fit(law).scale * size ** fit(law).power
            for number, size in enumerate(law.sizes)
        ]
        lines.append((f"{law.part}: T^{fit(law).power:.2f}", law.sizes, measured(law), fitted))
    return lines_picture(lines, "T", name)


def _law_fields(laws: Sequence[Law]) -> list[dict[str, Any]]:
    return [
        {
            "part": law.part,
            "against": law.size,
            "sizes": law.sizes,
            "seconds": law.seconds,
            "bytes_kept": law.saved_bytes,
            "time_power": law.time.power,
            "time_margin": law.time.margin,
            "time_theory": law.theory[0],
            "memory_power": law.memory.power,
            "memory_margin": law.memory.margin,
            "memory_theory": law.theory[1],
        }
        for law in laws
    ]
