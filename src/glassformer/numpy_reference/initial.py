"""Names, shapes and initial values of the weights of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glassformer.numpy_reference.activations import GATED
from glassformer.numpy_reference.arrays import Array

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig

Shapes = dict[str, tuple[int, ...]]


def shapes(
    settings: ModelConfig, vocab_size: int, source_vocab_size: int | None = None, classes: int | None = None
) -> Shapes:
    """Return the shape of every weight, by the names of the PyTorch model's `state_dict`.

    Args:
        settings: model settings.
        vocab_size: V.
        source_vocab_size: vocabulary size of a source with a separate embedding; None: V.
        classes: number of classes of a classifier.
    """
    D = settings.width
    weight_shapes = _embedding(settings, "embedding", vocab_size)
    if settings.family == "encoder-decoder":
        if not settings.shared_embedding:
            weight_shapes |= _embedding(settings, "source_embedding", source_vocab_size or vocab_size)
        weight_shapes |= _stack(settings, "encoder", settings.encoder_layers or settings.layers, cross=False)
        weight_shapes |= _stack(settings, "decoder", settings.layers, cross=True)
    else:
        weight_shapes |= _stack(settings, "stack", settings.layers, cross=False)
    if settings.family == "encoder" and classes is not None:
        return weight_shapes | {"head.weight": (classes, D), "head.bias": (classes,)}
    if not settings.tied:
        weight_shapes["head.weight"] = (vocab_size, D)
    if settings.head_bias:
        weight_shapes["head.bias"] = (vocab_size,)
    if settings.head_transform:
        weight_shapes |= _linear("head.transform", D, D, bias=True) | _norm(settings, "head.norm")
    return weight_shapes


def _embedding(settings: ModelConfig, name: str, vocab_size: int) -> Shapes:
    weight_shapes: Shapes = {f"{name}.tokens.weight": (vocab_size, settings.width)}
    if settings.positions == "learned":
        weight_shapes[f"{name}.positions.table.weight"] = (settings.context, settings.width)
    return weight_shapes | (_norm(settings, f"{name}.norm") if settings.embedding_norm else {})


def _stack(settings: ModelConfig, name: str, layers: int, cross: bool) -> Shapes:
    weight_shapes: Shapes = {}
    prefix = {"encoder": "enc", "decoder": "dec"}[name if name != "stack" else settings.family]
    if settings.positions == "relative":
        weight_shapes[f"{name}.score_positions.table.weight"] = (settings.relative_buckets, settings.heads)
    for index in range(layers):
        block = f"{name}.blocks.{index}"
        for part in ("attention", "cross") if cross else ("attention",):
            site = f"{prefix}.{index}.{'self' if part == 'attention' else 'cross'}"
            weight_shapes |= _norm(settings, f"{block}.{part}_norm") | _attention(settings, f"{block}.{part}", site)
        weight_shapes |= _norm(settings, f"{block}.feedforward_norm") | _feedforward(settings, f"{block}.feedforward")
    return weight_shapes | (_norm(settings, f"{name}.norm") if settings.norm_order != "post" else {})


def _norm(settings: ModelConfig, name: str) -> Shapes:
    if settings.norm == "none":
        return {}
    return {
        f"{name}.{parameter}": (settings.width,)
        for parameter in (["weight", "bias"] if settings.norm_bias else ["weight"])
    }


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> Shapes:
    return {f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if bias else {})


def _attention(settings: ModelConfig, name: str, site: str) -> Shapes:
    D = settings.width
    K = settings.K
    bias = settings.attention_bias
    H = len(settings.kept_heads(site))
    G = len(settings.kept_kv_heads(site))
    weight_shapes = _linear(f"{name}.query", H * K, D, bias)
    weight_shapes |= _linear(f"{name}.key", G * K, D, bias) | _linear(f"{name}.value", G * settings.U, D, bias)
    if settings.output_projection:
        weight_shapes |= _linear(f"{name}.output", D, H * settings.U, bias)
    if settings.qk_norm == "none" or not H:
        return weight_shapes
    query_width, key_width = (K, K) if settings.qk_norm == "head" else (H * K, G * K)
    return weight_shapes | {f"{name}.query_norm.weight": (query_width,), f"{name}.key_norm.weight": (key_width,)}


def _feedforward(settings: ModelConfig, name: str) -> Shapes:
    D = settings.width
    F = settings.F
    bias = settings.feedforward_bias
    weight_shapes = _linear(f"{name}.up", F, D, bias) | _linear(f"{name}.down", D, F, bias)
    return weight_shapes | (_linear(f"{name}.gate", F, D, bias) if settings.activation in GATED else {})


def initial_weights(
    settings: ModelConfig, vocab_size: int, seed: int = 0, source_vocab_size: int | None = None
) -> dict[str, Array]:
    """Return random initial weights, with which the loss is about ln V (ln C for a classifier).

    The distributions are those of the PyTorch model; the random numbers differ. Matrices are normally distributed with
    standard deviation 1 / √inputs. Matrices that write into the residual stream are also divided by the square root of
    their number (Radford et al. 2019, section 2.3), or are zero with `zero_output`; without norms, the matrix of
    `head_transform` is divided by the same root. The head, a tied embedding and the relative position biases have
    smaller values. All other biases are 0, and gains are 1.
    """
    generator = np.random.default_rng(seed)
    weights = {}
    weight_shapes = shapes(settings, vocab_size, source_vocab_size, settings.classes)
    writers = writing_matrices(settings)
    n_writers = sum(name.endswith(writers) for name in weight_shapes)
    for name, shape in weight_shapes.items():
        if len(shape) == 1:
            weights[name] = np.zeros(shape) if name.endswith("bias") else np.ones(shape)
        else:
            weights[name] = generator.normal(
                scale=_initial_std(name, shape, settings, vocab_size, n_writers), size=shape
            )
    return weights


def writing_matrices(settings: ModelConfig) -> tuple[str, str]:
    """Return the ends of the names of matrices that write into the residual stream."""
    return ("output.weight" if settings.output_projection else "value.weight", "down.weight")


def _initial_std(name: str, shape: tuple[int, ...], settings: ModelConfig, vocab_size: int, n_writers: int) -> float:
    """Return the standard deviation of a matrix's initial values."""
    std = 1 / math.sqrt(max(1, shape[1]))
    if name == "head.weight":
        return 0.1 * std
    if name.endswith("score_positions.table.weight"):
        return 0.02
    if name.endswith(writing_matrices(settings)):
        return 0.0 if settings.zero_output else std / math.sqrt(n_writers)
    if name == "head.transform.weight" and settings.norm == "none":
        return std / math.sqrt(n_writers)
    tied = settings.tied and not (settings.family == "encoder" and settings.classes is not None)
    # A tied embedding is also the head: with large rows, each token would predict itself.
    if tied and name.startswith("embedding."):
        return min(0.02, math.log1p(0.004 * vocab_size * math.log(vocab_size)) / settings.width)
    return std
