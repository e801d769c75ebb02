"""Numeric checks: other kernels, precisions, devices and implementations give the same logits, up to rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer import numpy_reference as reference
from glassformer.base.wording import counted
from glassformer.inspection.hooks import Tap, tapped
from glassformer.inspection.sites import Site, attentions
from glassformer.model.device import autocast, choose_device
from glassformer.model.evaluation_mode import inference
from glassformer.model.threads import threads
from glassformer.model.transformer import Classifier, Decoder, Encoder, EncoderDecoder
from glassformer.tasks.losses import logits_of
from glassformer.text.batches import Batch
from glassformer.verification.check import LOGITS, Check, Finding, distance
from glassformer.verification.process_state import bfloat16_on_cpu, in_float64
from glassformer.verification.verified_run import VerifiedRun

ROUNDING = 1e-4  # limit for float32 against float64 or another device: the errors of all layers add up
BF16 = 0.05  # limit: about 13 times one rounding error, 2^-8
REFERENCE = 1e-10  # limit for logits in float64
REFERENCE_GRADIENTS = 1e-8  # limit for gradients in float64
CPU = torch.device("cpu")


def fused_explicit(subject: VerifiedRun) -> Finding:
    """Compare logits computed with explicit attention in all layers with those of the fused kernel."""
    model = subject.model
    explicit_sites: set[Site] = set()

    def note(site: Site, pattern: Tensor) -> None:
        explicit_sites.add(site)

    patterns = {site: Tap(layer.hook_pattern) for site, layer in attentions(model).items()}
    with inference(model):
        fused_logits = _logits_by_mask(subject, subject.batch)
        with tapped(patterns, note):  # an observed pattern is computed explicitly
            explicit_logits = _logits_by_mask(subject, subject.batch)
    max_distance = (
        max(distance(a, b) for a, b in zip(explicit_logits, fused_logits, strict=True)) if explicit_sites else math.inf
    )
    return Finding(max_distance, f"{counted(len(explicit_sites), 'attention layers')}, explicit against fused")


def _logits_by_mask(subject: VerifiedRun, batch: Batch) -> list[Tensor]:
    """Return the logits of the batch; for a decoder, also those with a padding mask, which needs another kernel."""
    logits = [logits_of(subject.model, batch)]
    if isinstance(subject.model, Decoder):
        logits.append(subject.model(batch.inputs, batch.attention_mask)[batch.attention_mask])
    return logits


def float64(subject: VerifiedRun) -> Finding:
    """Compare the logits in float32 with those in float64."""
    with inference(subject.model), inference(subject.float64_model):
        logit_distance = distance(
            *(logits_of(model, subject.batch) for model in (subject.model, subject.float64_model))
        )
    return Finding(logit_distance, "float32 against float64")


def device(subject: VerifiedRun) -> Finding:
    """Compare the logits on the chosen device with those on the CPU."""
    target_device = choose_device(subject.device)
    with inference(subject.model):
        cpu_logits = logits_of(subject.model, subject.batch)  # (B, T, V) or (B, C)
        device_logits = logits_of(subject.copy().to(target_device), subject.batch.to(target_device))
    return Finding(distance(device_logits.cpu(), cpu_logits), str(target_device))


def no_device(subject: VerifiedRun) -> str | None:
    """Return the reason why the device check does not apply (the device is the CPU); None if it applies."""
    target_device = choose_device(subject.device)
    return "the device is the CPU, which the check float64 covers" if target_device.type == "cpu" else None


def bf16(subject: VerifiedRun) -> Finding:
    """Compare logits of bfloat16 matrix multiplications, as with `train.precision = bf16`, with those of float32."""
    with inference(subject.model):
        exact = logits_of(subject.model, subject.batch)  # (B, T, V) or (B, C)
        with autocast(CPU, torch.bfloat16), bfloat16_on_cpu():
            rounded = logits_of(subject.model, subject.batch).float()
    spread = float((exact - exact.mean(dim=-1, keepdim=True)).norm())
    relative_error = float((rounded - exact).norm()) / max(spread, 1e-12)
    changed = float((rounded.argmax(dim=-1) != exact.argmax(dim=-1)).float().mean())
    measure = "norm of the difference / norm of the centred logits"
    return Finding(relative_error, f"{measure}; the likeliest output changes in {changed:.1%} of cases")


def bf16_norms(subject: VerifiedRun) -> Finding:
    """Count norm layers that compute in bfloat16 under autocast, although a sum of squares needs more than 8 bits."""
    norms = [part for part in subject.model.modules() if isinstance(part, nn.LayerNorm | nn.RMSNorm)]
    inputs = [Tap(norm, "input") for norm in norms]
    outputs = [Tap(norm) for norm in norms]
    bfloat16_norms: set[nn.Module] = set()

    def note(tap: Tap, value: Tensor) -> None:
        if value.dtype == torch.bfloat16:
            bfloat16_norms.add(tap.module)

    taps = {tap: tap for tap in (*inputs, *outputs)}
    with inference(subject.model), tapped(taps, note), autocast(CPU, torch.bfloat16), bfloat16_on_cpu():
        logits_of(subject.model, subject.batch)
    return Finding(len(bfloat16_norms), f"{len(norms)} norms")


def no_norms(subject: VerifiedRun) -> str | None:
    """Return the reason why the check of norms does not apply (the model has no norms); None if it applies."""
    config = subject.config.model
    return "the model has no norms" if config.norm == "none" and config.qk_norm == "none" else None


def thread_counts(subject: VerifiedRun) -> Finding:
    """Compare logits computed with one thread and with several threads (at least two)."""
    thread_count = max(2, torch.get_num_threads())
    with inference(subject.model):
        with threads(1):
            single_threaded = logits_of(subject.model, subject.batch)
        with threads(thread_count):
            multi_threaded = logits_of(subject.model, subject.batch)
    return Finding(distance(multi_threaded, single_threaded), f"1 thread against {thread_count} threads")


def reference_logits(subject: VerifiedRun) -> Finding:
    """Compare the logits with those of the NumPy model, which is an independent implementation."""
    numpy_logits, _ = _reference(subject)
    with inference(subject.float64_model), in_float64():
        logits = logits_of(subject.float64_model, subject.batch)  # (B, T, V) or (B, C)
    expected = torch.from_numpy(numpy_logits)
    if logits.ndim == 3:  # logits at padding are not defined
        logits = logits[subject.batch.attention_mask]  # (real tokens, V)
        expected = expected[subject.batch.attention_mask]  # (real tokens, V)
    return Finding(distance(logits, expected), "in float64")


def reference_gradients(subject: VerifiedRun) -> Finding:
    """Compare the NumPy model's backward pass with autograd, for a random gradient of the logits."""
    model = subject.float64_model
    batch = subject.batch
    logits, saved_values = _reference(subject)
    upstream = np.random.Generator(np.random.Philox(20)).standard_normal(logits.shape)
    if logits.ndim == 3:
        upstream *= batch.attention_mask.numpy()[..., None]
    numpy_gradients = reference.backward(upstream, saved_values)
    parameters = dict(model.named_parameters())
    with in_float64():
        total = (logits_of(model, batch) * torch.from_numpy(upstream)).sum()
    autograd_gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    max_distance = 0.0
    for (name, weight), gradient in zip(parameters.items(), autograd_gradients, strict=True):
        expected = torch.zeros_like(weight) if gradient is None else gradient
        max_distance = max(
            max_distance, distance(torch.from_numpy(numpy_gradients.get(name, np.zeros(weight.shape))), expected)
        )
    return Finding(max_distance, f"{len(parameters)} tensors, in float64")


def _reference(subject: VerifiedRun) -> tuple[Any, Any]:
    """Return the logits of the NumPy model, and the values that its backward pass needs."""
    model = subject.model
    batch = subject.batch
    classes = len(subject.opened.labels) if isinstance(model, Classifier) else None
    settings = subject.config.model.replace(classes=classes)
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    has_source = isinstance(model, EncoderDecoder)
    padded = isinstance(model, Encoder | Classifier)
    inputs = reference.Inputs(
        batch.inputs.numpy(),
        batch.attention_mask.numpy() if padded else None,
        batch.source.numpy() if has_source and batch.source is not None else None,
        batch.source_attention_mask.numpy() if has_source and batch.source_attention_mask is not None else None,
    )
    return reference.forward(settings, weights, inputs)


CHECKS = (
    Check(
        "fused-explicit",
        "explicit attention equals the fused kernel",
        LOGITS,
        "of the largest logit",
        fused_explicit,
    ),
    Check("float64", "float64 gives the same logits", ROUNDING, "of the largest logit", float64),
    Check("device", "the device gives the same logits as the CPU", ROUNDING, "of the largest logit", device, no_device),
    Check(
        "bf16",
        "logits with bfloat16 matrix multiplications stay close to float32",
        BF16,
        "of the norm of the logits",
        bf16,
    ),
    Check(
        "bf16-norms",
        "norms compute in float32 under bfloat16 autocast",
        0,
        "norms that compute in bfloat16",
        bf16_norms,
        no_norms,
    ),
    Check("threads", "the number of threads does not affect the logits", LOGITS, "of the largest logit", thread_counts),
    Check("reference", "the NumPy model gives the same logits", REFERENCE, "of the largest logit", reference_logits),
    Check(
        "reference-gradients",
        "the NumPy model's backward pass gives the same gradients",
        REFERENCE_GRADIENTS,
        "of the largest gradient",
        reference_gradients,
    ),
)
