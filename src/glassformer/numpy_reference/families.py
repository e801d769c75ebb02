"""The three model families: decoder, encoder (with a token head or a classification head) and encoder-decoder.

The families differ only in the causal mask, the memory and the head. `forward` and `backward` handle every family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glassformer.numpy_reference.activations import activate, activate_backward
from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights, sum_gradients, under, with_prefix
from glassformer.numpy_reference.inputs import Inputs, checked_inputs, checked_weights
from glassformer.numpy_reference.linear import Linear, linear, linear_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.stack import NumpyStack, stack, stack_backward

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig


class Transform(NamedTuple):
    """Values saved by `transform` for the backward pass."""

    activation: str
    projected: Array  # (B, T, D)
    linear: Linear
    norm: NumpyNorm


def transform(x: Array, weights: Weights, settings: ModelConfig) -> tuple[Array, Transform]:
    """Return norm(f(x Wᵀ + b)), used before BERT's output layer (Devlin et al. 2019): (B, T, D) -> (B, T, D)."""
    projected, saved_linear = linear(x, under("transform", weights))  # (B, T, D)
    activated = activate(projected, settings.activation)  # (B, T, D)
    y, saved_norm = norm(activated, under("norm", weights), settings.norm, settings.eps)  # (B, T, D)
    return y, Transform(settings.activation, projected, saved_linear, saved_norm)


def transform_backward(dy: Array, saved: Transform) -> tuple[Array, dict[str, Array]]:
    """Return dx (B, T, D) and the gradients of the weights."""
    dactivated, norm_gradients = norm_backward(dy, saved.norm)  # (B, T, D)
    dprojected = activate_backward(dactivated, saved.projected, saved.activation)  # (B, T, D)
    dx, linear_gradients = linear_backward(dprojected, saved.linear)  # (B, T, D)
    return dx, with_prefix("transform", linear_gradients) | with_prefix("norm", norm_gradients)


class NumpyHead(NamedTuple):
    """Values saved by `head` for the backward pass."""

    tied: bool
    linear: Linear
    transform: Transform | None


def head(x: Array, weights: Weights, settings: ModelConfig) -> tuple[Array, NumpyHead]:
    """Return the logits x Wᵀ + b, where W is the head's matrix, or the embedding matrix if tied (Press and Wolf 2017).

    With `settings.head_transform`, x first passes through `transform`. x: (B, T, D) -> (B, T, V).
    """
    head_weights = under("head", weights)
    transformed = None
    if settings.head_transform:
        x, transformed = transform(x, head_weights, settings)  # (B, T, D)
    matrix = {name: value for name, value in head_weights.items() if name in ("weight", "bias")}
    if settings.tied:
        matrix["weight"] = weights["embedding.tokens.weight"]  # (V, D)
    logits, saved = linear(x, matrix)  # (B, T, V)
    return logits, NumpyHead(settings.tied, saved, transformed)


def head_backward(dlogits: Array, saved: NumpyHead) -> tuple[Array, dict[str, Array]]:
    """Return dx (B, T, D) and the gradients of the weights; a tied matrix's gradient has the embedding's name."""
    dx, gradients = linear_backward(dlogits, saved.linear)  # (B, T, D)
    tied_gradient = {"embedding.tokens.weight": gradients.pop("weight")} if saved.tied else {}
    if saved.transform is not None:
        dx, transform_gradients = transform_backward(dx, saved.transform)  # (B, T, D)
        gradients |= transform_gradients
    return dx, tied_gradient | with_prefix("head", gradients)


class TokenModel(NamedTuple):
    """Values saved for the backward pass of a decoder, or of an encoder with a token head."""

    stack: NumpyStack
    head: NumpyHead


def token_model(inputs: Inputs, weights: Weights, settings: ModelConfig) -> tuple[Array, TokenModel]:
    """Return the logits (B, T, V) of a decoder (Radford et al. 2018, equation 2) or encoder (Devlin et al. 2019)."""
    causal = settings.family == "decoder"
    x, saved_stack = stack(
        inputs.tokens, inputs.token_mask, under("embedding", weights), under("stack", weights), settings, causal
    )  # (B, T, D)
    logits, saved_head = head(x, weights, settings)  # (B, T, V)
    return logits, TokenModel(saved_stack, saved_head)


def token_model_backward(dlogits: Array, saved: TokenModel) -> dict[str, Array]:
    """Return the gradients of all weights."""
    dx, head_gradients = head_backward(dlogits, saved.head)  # (B, T, D)
    stack_gradients = stack_backward(dx, saved.stack)
    return sum_gradients(
        head_gradients, with_prefix("stack", stack_gradients.stack), with_prefix("embedding", stack_gradients.embedding)
    )


class NumpyClassifier(NamedTuple):
    """Values saved by `classifier` for the backward pass."""

    stack: NumpyStack
    pooling_weights: Array  # (B, T)
    head: Linear


def classifier(inputs: Inputs, weights: Weights, settings: ModelConfig) -> tuple[Array, NumpyClassifier]:
    """Return the class logits (B, C): a linear layer on the pooled vector Σ_t a_t x_t of each row.

    With mean pooling, a_t is 1 / n for each of the n tokens that are not padding. With first-token pooling, a_t is 1
    for the first of these tokens and 0 for the others (Devlin et al. 2019, section 3).
    """
    attention_mask = inputs.token_mask  # (B, T)
    x, saved_stack = stack(
        inputs.tokens, attention_mask, under("embedding", weights), under("stack", weights), settings, causal=False
    )  # (B, T, D)
    if settings.pooling == "first":
        pooling_weights = np.eye(attention_mask.shape[1])[attention_mask.argmax(axis=1)]  # (B, T)
    else:
        pooling_weights = attention_mask / np.maximum(attention_mask.sum(axis=1, keepdims=True), 1)  # (B, T)
    pooled = (pooling_weights[..., None] * x).sum(axis=1)  # (B, D)
    logits, saved_head = linear(pooled, under("head", weights))  # (B, C)
    return logits, NumpyClassifier(saved_stack, pooling_weights, saved_head)


def classifier_backward(dlogits: Array, saved: NumpyClassifier) -> dict[str, Array]:
    """Return the gradients of all weights; the gradient of each token's vector is dx_t = a_t dpooled."""
    dpooled, head_gradients = linear_backward(dlogits, saved.head)  # (B, D)
    dx = saved.pooling_weights[..., None] * dpooled[:, None, :]  # (B, T, D)
    stack_gradients = stack_backward(dx, saved.stack)
    return sum_gradients(
        with_prefix("head", head_gradients),
        with_prefix("stack", stack_gradients.stack),
        with_prefix("embedding", stack_gradients.embedding),
    )


class NumpyEncoderDecoder(NamedTuple):
    """Values saved by `encoder_decoder` for the backward pass."""

    encoder: NumpyStack
    decoder: NumpyStack
    head: NumpyHead
    source_name: str  # name of the source's embedding


def encoder_decoder(inputs: Inputs, weights: Weights, settings: ModelConfig) -> tuple[Array, NumpyEncoderDecoder]:
    """Return the logits (B, T, V) of the target, given the source (Vaswani et al. 2017, section 3.1).

    The target is padded on the right, so the causal mask already hides the padding from all real tokens.
    """
    source, source_attention_mask = inputs.source_and_mask
    source_name = "embedding" if settings.shared_embedding else "source_embedding"
    memory, encoder = stack(
        source, source_attention_mask, under(source_name, weights), under("encoder", weights), settings, causal=False
    )  # (B, S, D)
    x, decoder = stack(
        inputs.tokens,
        np.ones(inputs.tokens.shape, dtype=np.bool_),
        under("embedding", weights),
        under("decoder", weights),
        settings,
        True,
        memory,
        source_attention_mask,
    )  # (B, T, D)
    logits, saved_head = head(x, weights, settings)  # (B, T, V)
    return logits, NumpyEncoderDecoder(encoder, decoder, saved_head, source_name)


def encoder_decoder_backward(dlogits: Array, saved: NumpyEncoderDecoder) -> dict[str, Array]:
    """Return the gradients of all weights.

    The gradient of a shared embedding is the sum over its uses: source, target and, if tied, head.
    """
    dx, head_gradients = head_backward(dlogits, saved.head)  # (B, T, D)
    decoder_gradients = stack_backward(dx, saved.decoder)
    if decoder_gradients.memory is None:
        raise ValueError("the decoder has no cross-attention")
    encoder_gradients = stack_backward(decoder_gradients.memory, saved.encoder)
    return sum_gradients(
        head_gradients,
        with_prefix("decoder", decoder_gradients.stack),
        with_prefix("encoder", encoder_gradients.stack),
        with_prefix("embedding", decoder_gradients.embedding),
        with_prefix(saved.source_name, encoder_gradients.embedding),
    )


Saved = TokenModel | NumpyClassifier | NumpyEncoderDecoder


def forward(settings: ModelConfig, weights: Weights, inputs: Inputs) -> tuple[Array, Saved]:
    """Compute the logits of a model of any family.

    Returns:
        Logits (B, T, V), or (B, C) for a classifier, and the values for `backward`.

    Raises:
        ValueError: weights or inputs do not fit the settings; the message names the first difference.
    """
    weights = checked_weights(settings, weights)
    inputs = checked_inputs(settings, weights, inputs)
    if settings.family == "encoder-decoder":
        return encoder_decoder(inputs, weights, settings)
    if settings.family == "encoder" and settings.classes is not None:
        return classifier(inputs, weights, settings)
    return token_model(inputs, weights, settings)


def backward(dlogits: Array, saved: Saved) -> dict[str, Array]:
    """Return the gradients of all weights, by name, from the gradient of the logits."""
    if isinstance(saved, TokenModel):
        return token_model_backward(dlogits, saved)
    if isinstance(saved, NumpyClassifier):
        return classifier_backward(dlogits, saved)
    return encoder_decoder_backward(dlogits, saved)


def logits(
    settings: ModelConfig,
    weights: Weights,
    tokens: Ints,
    attention_mask: Bools | None = None,
    source: Ints | None = None,
    source_attention_mask: Bools | None = None,
) -> Array:
    """Compute the logits of a model of any family, for comparison with another implementation.

    Args:
        settings: model settings; an encoder with `classes` is a classifier.
        weights: arrays named as in the PyTorch model's `state_dict`; any float type, converted to float64.
        tokens: (B, T) token ids; for an encoder-decoder, the target ids.
        attention_mask: (B, T) bool, False at padding; None: no padding. Not for an encoder-decoder, whose target is
            padded on the right.
        source: (B, S) source ids of an encoder-decoder; otherwise None.
        source_attention_mask: (B, S) bool, False at padding of the source; None: no padding.

    Returns:
        Logits (B, T, V), or (B, C) for a classifier.

    Raises:
        ValueError: weights or inputs do not fit the settings.
    """
    return forward(settings, weights, Inputs(tokens, attention_mask, source, source_attention_mask))[0]
