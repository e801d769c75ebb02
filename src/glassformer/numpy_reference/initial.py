"""Names, shapes and initial values of the weights of a model."""

from __future__ import annotations

import math

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer.numpy_reference.settings import GATED, Settings

Shapes = dict[str, tuple[int, ...]]


def shapes(
    settings: Settings, vocab_size: int, source_vocab_size: int | None = None, classes: int | None = None
) -> Shapes:
    """Return the shape of every weight, by the names of the PyTorch model's `state_dict`.

    Args:
        settings: model settings.
        vocab_size: V.
        source_vocab_size: vocabulary size of a source with a separate embedding; None: V.
        classes: number of classes of a classifier.
    """
    D = settings.width
    found = _embedding(settings, "embedding", vocab_size)
    if settings.family == "encoder-decoder":
        if not settings.shared_embedding:
            found |= _embedding(settings, "source_embedding", source_vocab_size or vocab_size)
        found |= _stack(settings, "encoder", settings.encoder_layers or settings.layers, cross=False)
        found |= _stack(settings, "decoder", settings.layers, cross=True)
    else:
        found |= _stack(settings, "stack", settings.layers, cross=False)
    if settings.family == "encoder" and classes is not None:
        return found | {"head.weight": (classes, D), "head.bias": (classes,)}
    if not settings.tied:
        found["head.weight"] = (vocab_size, D)
    if settings.head_bias:
        found["head.bias"] = (vocab_size,)
    if settings.head_transform:
        found |= _linear("head.transform", D, D, bias=True) | _norm(settings, "head.norm")
    return found


def _embedding(settings: Settings, name: str, vocab_size: int) -> Shapes:
    found: Shapes = {f"{name}.tokens.weight": (vocab_size, settings.width)}
    if settings.positions == "learned":
        found[f"{name}.positions.table.weight"] = (settings.context, settings.width)
    return found | (_norm(settings, f"{name}.norm") if settings.embedding_norm else {})


def _stack(settings: Settings, name: str, layers: int, cross: bool) -> Shapes:
    found: Shapes = {}
    short = {"encoder": "enc", "decoder": "dec"}[name if name != "stack" else settings.family]
    if settings.positions == "relative":
        found[f"{name}.score_positions.table.weight"] = (settings.relative_buckets, settings.heads)
    for index in range(layers):
        at = f"{name}.blocks.{index}"
        for part in ("attention", "cross") if cross else ("attention",):
            site = f"{short}.{index}.{'self' if part == 'attention' else 'cross'}"
            found |= _norm(settings, f"{at}.{part}_norm") | _attention(settings, f"{at}.{part}", site)
        found |= _norm(settings, f"{at}.feedforward_norm") | _feedforward(settings, f"{at}.feedforward")
    return found | (_norm(settings, f"{name}.norm") if settings.norm_order != "post" else {})


def _norm(settings: Settings, name: str) -> Shapes:
    if settings.norm == "none":
        return {}
    return {f"{name}.{each}": (settings.width,) for each in (["weight", "bias"] if settings.norm_bias else ["weight"])}


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> Shapes:
    return {f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if bias else {})


def _attention(settings: Settings, name: str, site: str) -> Shapes:
    D = settings.width
    K = settings.K
    bias = settings.attention_bias
    H = len(settings.kept_heads(site))
    G = len(settings.kept_kv_heads(site))
    found = _linear(f"{name}.query", H * K, D, bias)
    found |= _linear(f"{name}.key", G * K, D, bias) | _linear(f"{name}.value", G * K, D, bias)
    found |= _linear(f"{name}.output", D, H * K, bias)
    if settings.qk_norm == "none" or not H:
        return found
    queries, keys = (K, K) if settings.qk_norm == "head" else (H * K, G * K)
    return found | {f"{name}.query_norm.weight": (queries,), f"{name}.key_norm.weight": (keys,)}


def _feedforward(settings: Settings, name: str) -> Shapes:
    D = settings.width
    F = settings.F
    bias = settings.feedforward_bias
    found = _linear(f"{name}.up", F, D, bias) | _linear(f"{name}.down", D, F, bias)
    return found | (_linear(f"{name}.gate", F, D, bias) if settings.activation in GATED else {})


def initial_weights(
    settings: Settings, vocab_size: int, seed: int = 0, source_vocab_size: int | None = None
) -> dict[str, Array]:
    """Return random initial weights, with which the loss is about ln V (ln C for a classifier).

    The distributions are those of the PyTorch model; the random numbers differ. Matrices are normally distributed with
    standard deviation 1 / √inputs. Matrices that write into the residual stream are also divided by the square root of
    their number (Radford et al. 2019, section 2.3), or are zero with `zero_output`; without norms, the matrix of
    `head_transform` is divided by the same root. The head, a tied embedding and the relative position biases have
    smaller values. All other biases are 0, and gains are 1.
    """
    generator = np.random.default_rng(seed)
    found = {}
    wanted = shapes(settings, vocab_size, source_vocab_size, settings.classes)
    writers = sum(name.endswith(("output.weight", "down.weight")) for name in wanted)
    for name, shape in wanted.items():
        if len(shape) == 1:
            found[name] = np.zeros(shape) if name.endswith("bias") else np.ones(shape)
        else:
            found[name] = generator.normal(scale=_deviation(name, shape, settings, vocab_size, writers), size=shape)
    return found


def _deviation(name: str, shape: tuple[int, ...], settings: Settings, vocab_size: int, writers: int) -> float:
    """Return the standard deviation of a matrix's initial values."""
    small = 1 / math.sqrt(max(1, shape[1]))
    if name == "head.weight":
        return 0.1 * small
    if name.endswith("score_positions.table.weight"):
        return 0.02
    if name.endswith(("output.weight", "down.weight")):
        return 0.0 if settings.zero_output else small / math.sqrt(writers)
    if name == "head.transform.weight" and settings.norm == "none":
        return small / math.sqrt(writers)
    tied = settings.tied and not (settings.family == "encoder" and settings.classes is not None)
    # A tied embedding is also the head: with large rows, each token would predict itself.
    if tied and name.startswith("embedding."):
        return min(0.02, math.log1p(0.004 * vocab_size * math.log(vocab_size)) / settings.width)
    return small
