"""Comparison of logits and gradients on each device of this machine with float64 results on the CPU.

The model has random weights and the run's architecture (positions, norms, activation, heads, masks), with sizes small
enough that all checks take a few seconds. The distance of logits and gradients from those in float64 is measured for
each device and precision; on the CPU, float32 is measured with one thread and with one thread per core. In addition,
fused attention is compared with explicit attention on the same device. float32 has 24 significant bits and bfloat16 has
8, so the relative error of one rounding is at most 6e-8 in float32 and 4e-3 in bfloat16. The limits allow for different
kernels: they are about four to fifteen times the error of a correct processor in bfloat16, about ten to ninety times in
float32, and far below the error of a wrong kernel.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.base.config import ModelConfig
from glassformer.model.attention import Mask, attend, self_attention_mask
from glassformer.model.build import build_model
from glassformer.model.device import autocast
from glassformer.model.positions import token_positions
from glassformer.model.threads import threads
from glassformer.model.transformer import Classifier, Model, ModelInput
from glassformer.verification.process_state import own_random_numbers

Computed = tuple[Tensor, Tensor | None]
"""Logits, and all gradients concatenated into one vector."""
ROWS = 3  # rows of the batch; the first one ends in padding
LENGTH = 24  # tokens of a row
MOST = {"layers": 2, "encoder_layers": 2, "width": 256, "hidden": 512, "heads": 8, "context": 64}
WINDOW = LENGTH // 2  # so that a run's long window masks tokens of the batch too
VOCABULARY = 509
CLASSES = 5
LIMITS = {"float32": (1e-5, 2e-5), "bfloat16": (5e-2, 1.5e-1), "attention": (1e-5, 2e-5)}
"""Limits for logits and gradients: norm of the difference / norm of the float64 result (of explicit attention, if
fused attention is compared with it)."""


@dataclass(frozen=True)
class DeviceAgreement:
    """Result of one comparison on a device.

    Attributes:
        name: name of the comparison.
        device: name of the device, such as "cpu", "cuda:0" or "mps".
        logits: distance of the logits (or outputs of attention): norm of the difference / norm of the reference.
        gradients: the same distance for all gradients together; None if no gradients were computed.
        limit: the largest allowed `logits`.
        gradient_limit: the largest allowed `gradients`.
    """

    name: str
    device: str
    logits: float
    gradients: float | None
    limit: float
    gradient_limit: float

    @property
    def ok(self) -> bool:
        """Whether both distances are within their limits; a NaN distance is not."""
        return self.logits <= self.limit and (self.gradients is None or self.gradients <= self.gradient_limit)

    def facts(self) -> dict[str, Any]:
        """Return the comparison as JSON values; an infinite distance becomes null, and `ok` is then false."""
        numbers = {"logits": self.logits, "gradients": self.gradients}
        finite = {
            name: number if number is not None and math.isfinite(number) else None for name, number in numbers.items()
        }
        return {**asdict(self), **finite, "ok": self.ok}


def cut_sizes(config: ModelConfig) -> tuple[ModelConfig, list[str]]:
    """Return the settings with small sizes and without dropout, and a description of each changed size."""
    group = config.heads // config.G
    G = max(1, min(config.G, MOST["heads"] // group))
    sizes: dict[str, int | None] = {
        "layers": min(config.layers, MOST["layers"]),
        "width": min(config.width, MOST["width"]),
        "heads": G * group,
        "hidden": min(config.F, MOST["hidden"]),
        "context": min(config.context, MOST["context"]),
        "window": config.window and min(config.window, WINDOW, config.context),
        "encoder_layers": config.encoder_layers and min(config.encoder_layers, MOST["encoder_layers"]),
    }
    original_sizes = {**{name: getattr(config, name) for name in sizes}, "hidden": config.F}
    notes = [f"{name} {original_sizes[name]} -> {size}" for name, size in sizes.items() if size != original_sizes[name]]
    fixed = {
        "kv_heads": G,
        "head_width": config.K,
        "value_width": config.U,
        "vocab_size": None,
        "source_vocab_size": None,
        "classes": None,
    }
    no_dropout = dict.fromkeys(("dropout_embedding", "dropout_attention", "dropout_residual"), 0.0)
    removed_heads = [name for name in config.removed_heads if _still_exists(name, sizes)]
    return config.replace(**sizes, **fixed, **no_dropout, removed_heads=removed_heads), notes


def _still_exists(head: str, sizes: Mapping[str, int | None]) -> bool:
    """Return whether a head, such as `enc.0.self.3`, still exists with these sizes."""
    stack, layer, _, number = head.split(".")
    layers = (sizes["encoder_layers"] if stack == "enc" else None) or sizes["layers"] or 0
    return int(layer) < layers and int(number) < (sizes["heads"] or 0)


def check_devices(config: ModelConfig, devices: list[str], classify: bool = False) -> list[DeviceAgreement]:
    """Run all comparisons on the given devices.

    Args:
        config: settings of the model, with sizes reduced by `cut_sizes`.
        devices: names of devices, such as "cpu" and "cuda:0".
        classify: True if the encoder is a classifier.
    """
    with own_random_numbers(), threads(1):
        model = build_model(config, VOCABULARY, source_vocab_size=VOCABULARY, classes=CLASSES if classify else None)
        inputs = _inputs(model, min(LENGTH, config.context))
        reference = _logits_and_gradients(copy.deepcopy(model).double(), inputs, torch.device("cpu"), torch.float64)
    agreements: list[DeviceAgreement] = []
    for name in devices:
        device = torch.device(name)
        for count in sorted({1, usable_cores()}) if name == "cpu" else [1]:
            with threads(count):
                result = _logits_and_gradients(copy.deepcopy(model).to(device), inputs, device, torch.float32)
            thread_note = f", {count} thread{'s' if count > 1 else ''}" if name == "cpu" else ""
            agreements.append(_agreement(f"float32{thread_note}", name, result, reference, "float32"))
        with threads(1):  # on a busy processor, threads that wait for each other take seconds
            agreements.append(check_attention(config, device))
            if computes_in(device, torch.bfloat16):
                agreements += _in_bfloat16(model, inputs, device, reference)
    return agreements


def _in_bfloat16(
    model: Model, inputs: dict[str, Tensor], device: torch.device, reference: Computed
) -> list[DeviceAgreement]:
    """Compare `reference` with bfloat16 in matrix multiplications only (training), and in all weights (generation)."""
    mixed_result = _logits_and_gradients(copy.deepcopy(model).to(device), inputs, device, torch.bfloat16)
    bfloat16_model = copy.deepcopy(model).to(device, torch.bfloat16)
    with torch.inference_mode():
        bfloat16_result = _forward(bfloat16_model, inputs, device), None
    return [
        _agreement("bfloat16 matmuls, float32 weights", str(device), mixed_result, reference, "bfloat16"),
        _agreement("bfloat16 weights, as in generation", str(device), bfloat16_result, reference, "bfloat16"),
    ]


def check_attention(config: ModelConfig, device: torch.device) -> DeviceAgreement:
    """Compare fused with explicit attention in float32, for the model's heads and masks."""
    causal = config.family != "encoder"
    T = min(LENGTH, config.context)
    random = torch.Generator().manual_seed(1)
    attention_mask = _attention_mask(ROWS, T)
    positions = token_positions(attention_mask)  # (B, T)
    padded = self_attention_mask(positions, positions, attention_mask, causal, config.window)  # (B, 1, T, S)
    plain = Mask(is_causal=True) if causal else Mask()
    biased = padded.with_bias(torch.randn(1, config.heads, T, T, generator=random))  # (B, H, T, S)
    logits = 0.0
    gradients = 0.0
    for mask in (plain, padded, biased):
        tensors = (mask.allowed, mask.fully_masked, mask.bias)
        allowed, fully_masked, bias = (None if tensor is None else tensor.to(device) for tensor in tensors)
        device_mask = Mask(allowed, mask.is_causal, fully_masked, bias)
        q, k, v = (
            torch.randn(ROWS, heads, T, width, generator=random).to(device).requires_grad_()
            for heads, width in ((config.heads, config.K), (config.G, config.K), (config.G, config.U))
        )  # (B, H, T, K), (B, G, S, K), (B, G, S, U)
        outputs = [
            attend(q, k, v, device_mask, explicit=explicit)[0] for explicit in (False, True)
        ]  # (B, H, T, U) each
        gradient_tuples = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in outputs]
        # All gradients form one vector, because those of q alone are 0 where only one key is visible.
        flat_gradients = [torch.cat([gradient.flatten() for gradient in each]) for each in gradient_tuples]
        logits = max(logits, _distance(outputs[0], outputs[1]))
        gradients = max(gradients, _distance(flat_gradients[0], flat_gradients[1]))
    return DeviceAgreement("fused against explicit attention", str(device), logits, gradients, *LIMITS["attention"])


def computes_in(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a device can multiply matrices of this dtype."""
    try:
        square = torch.ones(8, 8, device=device, dtype=dtype)
        return bool((square @ square).float().eq(8).all())
    except (RuntimeError, TypeError):
        return False


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _attention_mask(rows: int, length: int) -> Tensor:
    """Return the mask of real tokens, (B, T) bool; the last quarter of the first row is padding."""
    attention_mask = torch.ones(rows, length, dtype=torch.bool)  # (B, T)
    attention_mask[0, length - length // 4 :] = False
    return attention_mask


def _inputs(model: Model, length: int) -> dict[str, Tensor]:
    """Return random ids (B, T), the mask of real tokens (B, T), and targets: ids (B, T) or classes (B)."""
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (ROWS, length), generator=random)  # (B, T)
    answers = torch.randint(VOCABULARY, (ROWS, length), generator=random)  # (B, T)
    if isinstance(model, Classifier):
        answers = torch.randint(CLASSES, (ROWS,), generator=random)  # (B)
    return {"tokens": tokens, "attention_mask": _attention_mask(ROWS, length), "answers": answers}


def _forward(model: Model, inputs: dict[str, Tensor], device: torch.device) -> Tensor:
    """Compute logits (B, T, V) or scores (B, C); an encoder-decoder reads the ids as source, and reversed as target."""
    tokens = inputs["tokens"].to(device)  # (B, T)
    attention_mask = inputs["attention_mask"].to(device)  # (B, T)
    target = tokens.flip(1) if len(model.stacks) == 2 else None  # (B, T)
    return model.run(ModelInput(tokens, target, attention_mask))  # (B, T, V) or (B, C)


def _logits_and_gradients(
    model: Model, inputs: dict[str, Tensor], device: torch.device, dtype: torch.dtype
) -> Computed:
    """Compute the logits, and the gradients of the cross-entropy loss for all parameters as one vector."""
    with autocast(device, torch.bfloat16 if dtype == torch.bfloat16 else torch.float32):
        logits = _forward(model.eval(), inputs, device)
    flat = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)  # (B T, V) or (B, C)
    loss = F.cross_entropy(flat, inputs["answers"].flatten().to(device))
    parameter_gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    pairs = zip(model.parameters(), parameter_gradients, strict=True)
    dense_gradients = [torch.zeros_like(weight) if gradient is None else gradient for weight, gradient in pairs]
    return logits.detach(), torch.cat([row.flatten().cpu().double() for row in dense_gradients])


def _agreement(name: str, device: str, result: Computed, reference: Computed, kind: str) -> DeviceAgreement:
    gradients = None if result[1] is None or reference[1] is None else _distance(result[1], reference[1])
    return DeviceAgreement(name, device, _distance(result[0], reference[0]), gradients, *LIMITS[kind])


def _distance(result: Tensor, reference: Tensor) -> float:
    """Return ‖result - reference‖ / ‖reference‖ for tensors of any shape; infinity instead of NaN."""
    a = result.detach().cpu().double()
    b = reference.detach().cpu().double()
    distance = float((a - b).norm() / b.norm())
    return distance if distance == distance else float("inf")
