"""The three families: decoder, encoder (with a head over tokens, or over classes), encoder-decoder.

They differ in mask, memory and head only. `forward` and `backward` are the two halves of one pass, for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.activations import activate, activate_backward
from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights, placed, total, under
from glassformer.numpy_reference.inputs import Inputs, checked_inputs, checked_weights
from glassformer.numpy_reference.linear import Linear, linear, linear_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.settings import Settings
from glassformer.numpy_reference.stack import NumpyStack, stack, stack_backward


class Transform(NamedTuple):
    """Values saved by `transform` for the backward pass."""

    activation: str
    raised: Array  # (B, T, D)
    linear: Linear
    norm: NumpyNorm


def transform(x: Array, weights: Weights, settings: Settings) -> tuple[Array, Transform]:
    """norm(f(x Wᵀ + b)), before the output layer of BERT (Devlin et al. 2019); x: (B, T, D) -> (B, T, D)."""
    raised, kept = linear(x, under("transform", weights))  # (B, T, D)
    opened = activate(raised, settings.activation)  # (B, T, D)
    y, last = norm(opened, under("norm", weights), settings.norm, settings.eps)  # (B, T, D)
    return y, Transform(settings.activation, raised, kept, last)


def transform_backward(dy: Array, kept: Transform) -> tuple[Array, dict[str, Array]]:
    """dx (B, T, D), and the gradients of the weights."""
    dopened, gain = norm_backward(dy, kept.norm)  # (B, T, D)
    draised = activate_backward(dopened, kept.raised, kept.activation)  # (B, T, D)
    dx, matrix = linear_backward(draised, kept.linear)  # (B, T, D)
    return dx, placed("transform", matrix) | placed("norm", gain)


class NumpyHead(NamedTuple):
    """Values saved by `head` for the backward pass."""

    tied: bool
    linear: Linear
    transform: Transform | None


def head(x: Array, weights: Weights, settings: Settings) -> tuple[Array, NumpyHead]:
    """Logits x Wᵀ + b, with W its own matrix, or the embedding's when tied (Press and Wolf 2017).

    x, behind its transform where there is one: (B, T, D) -> (B, T, V).
    """
    own = under("head", weights)
    transformed = None
    if settings.head_transform:
        x, transformed = transform(x, own, settings)  # (B, T, D)
    matrix = {name: value for name, value in own.items() if name in ("weight", "bias")}
    if settings.tied:
        matrix["weight"] = weights["embedding.tokens.weight"]  # (V, D)
    logits, kept = linear(x, matrix)  # (B, T, V)
    return logits, NumpyHead(settings.tied, kept, transformed)


def head_backward(dlogits: Array, kept: NumpyHead) -> tuple[Array, dict[str, Array]]:
    """dx (B, T, D); a tied matrix gets its gradient under the embedding's name, where that of the look-up is added."""
    dx, gradients = linear_backward(dlogits, kept.linear)  # (B, T, D)
    matrix = {"embedding.tokens.weight": gradients.pop("weight")} if kept.tied else {}
    if kept.transform is not None:
        dx, of_transform = transform_backward(dx, kept.transform)  # (B, T, D)
        gradients |= of_transform
    return dx, matrix | placed("head", gradients)


class TokenModel(NamedTuple):
    """Values saved for the backward pass of a decoder, or of an encoder with a head over tokens."""

    stack: NumpyStack
    head: NumpyHead


def token_model(inputs: Inputs, weights: Weights, settings: Settings) -> tuple[Array, TokenModel]:
    """A decoder (Radford et al. 2018, equation 2), or an encoder that names its own tokens (Devlin et al. 2019).

    -> (B, T, V).
    """
    causal = settings.family == "decoder"
    x, kept = stack(
        inputs.tokens, inputs.real_tokens, under("embedding", weights), under("stack", weights), settings, causal
    )  # (B, T, D)
    logits, kept_head = head(x, weights, settings)  # (B, T, V)
    return logits, TokenModel(kept, kept_head)


def token_model_backward(dlogits: Array, kept: TokenModel) -> dict[str, Array]:
    """The gradients of all weights."""
    dx, of_head = head_backward(dlogits, kept.head)  # (B, T, D)
    found = stack_backward(dx, kept.stack)
    return total(of_head, placed("stack", found.stack), placed("embedding", found.embedding))


class NumpyClassifier(NamedTuple):
    """Values saved by `classifier` for the backward pass."""

    stack: NumpyStack
    shares: Array  # (B, T)
    head: Linear


def classifier(inputs: Inputs, weights: Weights, settings: Settings) -> tuple[Array, NumpyClassifier]:
    """Scores of the classes, from one vector for each row: Σ_t share_t x_t, then a linear map.

    The shares are 1 / n for each of n real tokens (mean), or 1 for the first real one (Devlin et al. 2019, section 3).

    -> (B, C).
    """
    real = inputs.real_tokens  # (B, T)
    x, kept = stack(
        inputs.tokens, real, under("embedding", weights), under("stack", weights), settings, causal=False
    )  # (B, T, D)
    if settings.pooling == "first":
        shares = np.eye(real.shape[1])[real.argmax(axis=1)]  # (B, T)
    else:
        shares = real / np.maximum(real.sum(axis=1, keepdims=True), 1)  # (B, T)
    pooled = (shares[..., None] * x).sum(axis=1)  # (B, D)
    scores, kept_head = linear(pooled, under("head", weights))  # (B, C)
    return scores, NumpyClassifier(kept, shares, kept_head)


def classifier_backward(dscores: Array, kept: NumpyClassifier) -> dict[str, Array]:
    """Each token gets its share of the pooled vector's gradient: dx_t = share_t dpooled."""
    dpooled, of_head = linear_backward(dscores, kept.head)  # (B, D)
    dx = kept.shares[..., None] * dpooled[:, None, :]  # (B, T, D)
    found = stack_backward(dx, kept.stack)
    return total(placed("head", of_head), placed("stack", found.stack), placed("embedding", found.embedding))


class NumpyEncoderDecoder(NamedTuple):
    """Values saved by `encoder_decoder` for the backward pass."""

    encoder: NumpyStack
    decoder: NumpyStack
    head: NumpyHead
    source_name: str  # of the source's embedding


def encoder_decoder(inputs: Inputs, weights: Weights, settings: Settings) -> tuple[Array, NumpyEncoderDecoder]:
    """The source is read whole, the target token by token (Vaswani et al. 2017, section 3.1).

    A target's padding stands last, where no real token of it looks, so the decoder hides none.

    -> (B, T, V).
    """
    source, real_source = inputs.given_source
    source_name = "embedding" if settings.shared_embedding else "source_embedding"
    memory, encoder = stack(
        source, real_source, under(source_name, weights), under("encoder", weights), settings, causal=False
    )  # (B, S, D)
    x, decoder = stack(
        inputs.tokens,
        np.ones(inputs.tokens.shape, dtype=np.bool_),
        under("embedding", weights),
        under("decoder", weights),
        settings,
        True,
        memory,
        real_source,
    )  # (B, T, D)
    logits, kept_head = head(x, weights, settings)  # (B, T, V)
    return logits, NumpyEncoderDecoder(encoder, decoder, kept_head, source_name)


def encoder_decoder_backward(dlogits: Array, kept: NumpyEncoderDecoder) -> dict[str, Array]:
    """Through the decoder to the memory, and from there through the encoder; a shared embedding gets all three sums."""
    dx, of_head = head_backward(dlogits, kept.head)  # (B, T, D)
    target = stack_backward(dx, kept.decoder)
    if target.memory is None:
        raise ValueError("the decoder did not look at its memory")
    source = stack_backward(target.memory, kept.encoder)
    return total(
        of_head,
        placed("decoder", target.stack),
        placed("encoder", source.stack),
        placed("embedding", target.embedding),
        placed(kept.source_name, source.embedding),
    )


Kept = TokenModel | NumpyClassifier | NumpyEncoderDecoder


def forward(settings: Settings, weights: Weights, inputs: Inputs) -> tuple[Array, Kept]:
    """The logits of any family, and what `backward` needs.

    Returns:
        (B, T, V), or (B, C) of a classifier.

    Raises:
        ValueError: weights or inputs do not fit the settings; the first difference is named.
    """
    weights = checked_weights(settings, weights)
    inputs = checked_inputs(settings, weights, inputs)
    if settings.family == "encoder-decoder":
        return encoder_decoder(inputs, weights, settings)
    if settings.family == "encoder" and settings.classes is not None:
        return classifier(inputs, weights, settings)
    return token_model(inputs, weights, settings)


def backward(dlogits: Array, kept: Kept) -> dict[str, Array]:
    """The gradient of every weight, under its name, from the gradient of the logits."""
    if isinstance(kept, TokenModel):
        return token_model_backward(dlogits, kept)
    if isinstance(kept, NumpyClassifier):
        return classifier_backward(dlogits, kept)
    return encoder_decoder_backward(dlogits, kept)


def logits(
    settings: Settings,
    weights: Weights,
    tokens: Ints,
    real: Bools | None = None,
    source: Ints | None = None,
    real_source: Bools | None = None,
) -> Array:
    """Compute the logits of a model of any family, to compare another implementation with.

    Args:
        settings: of the model; an encoder with `classes` is a classifier.
        weights: by the names of the PyTorch model's `state_dict`; any kind of float, computed in float64.
        tokens: (B, T) ids; of an encoder-decoder, those of the target.
        real: (B, T) False at padding; None: all real. An encoder-decoder takes none: its target's padding stands last.
        source, real_source: (B, S) of an encoder-decoder, and of no other family.

    Returns:
        (B, T, V), or (B, C) of a classifier.

    Raises:
        ValueError: see `forward`.
    """
    return forward(settings, weights, Inputs(tokens, real, source, real_source))[0]
