"""Inputs of a forward pass, which are checked because NumPy would read a negative id as an index from the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights
from glassformer.numpy_reference.initial import shapes

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig


@dataclass(frozen=True)
class Inputs:
    """Token ids and attention masks of one forward pass.

    Attributes:
        tokens: (B, T) token ids; for an encoder-decoder, the target ids.
        attention_mask: (B, T) bool, False at padding; None: no padding.
        source: (B, S) source ids of an encoder-decoder.
        source_attention_mask: (B, S) bool, False at padding of the source; None: no padding.
    """

    tokens: Ints
    attention_mask: Bools | None = None
    source: Ints | None = None
    source_attention_mask: Bools | None = None

    @property
    def token_mask(self) -> Bools:
        """Attention mask of the tokens, (B, T); all True if there is no padding mask."""
        return np.ones(self.tokens.shape, dtype=np.bool_) if self.attention_mask is None else self.attention_mask

    @property
    def source_and_mask(self) -> tuple[Ints, Bools]:
        """Source ids and their attention mask, (B, S) each; the mask is all True if there is no padding mask."""
        if self.source is None:
            raise ValueError("an encoder-decoder needs a source: give source=(B, S) ids")
        if self.source_attention_mask is None:
            return self.source, np.ones(self.source.shape, dtype=np.bool_)
        return self.source, self.source_attention_mask


def checked_weights(settings: ModelConfig, weights: Weights) -> dict[str, Array]:
    """Return the weights in float64; raise an error if names or shapes do not fit the settings."""
    if "embedding.tokens.weight" not in weights:
        raise ValueError("there is no weight embedding.tokens.weight: give a model's state_dict")
    source = weights.get("source_embedding.tokens.weight")
    expected_shapes = shapes(
        settings, len(weights["embedding.tokens.weight"]), None if source is None else len(source), settings.classes
    )
    for name, shape in expected_shapes.items():
        actual = tuple(weights[name].shape) if name in weights else "missing"
        if actual != shape:
            problem = "is missing" if actual == "missing" else f"has shape {actual}"
            raise ValueError(f"the weight {name} {problem}, but the settings need shape {shape}")
    extra = sorted(weights.keys() - expected_shapes.keys())
    if extra:
        raise ValueError(f"the settings have no weight {extra[0]}: the weights belong to another model")
    return {name: np.asarray(weights[name], dtype=np.float64) for name in expected_shapes}


def checked_inputs(settings: ModelConfig, weights: Weights, inputs: Inputs) -> Inputs:
    """Return the inputs as arrays of the right types; raise an error if they do not fit the model."""
    has_source = settings.family == "encoder-decoder"
    if has_source and inputs.attention_mask is not None:
        raise ValueError("an encoder-decoder takes no attention_mask: give source_attention_mask")
    if not has_source and (inputs.source is not None or inputs.source_attention_mask is not None):
        raise ValueError(f"the {settings.family} family takes no source: give tokens and attention_mask")
    tokens = _checked_ids("tokens", inputs.tokens, len(weights["embedding.tokens.weight"]), settings.context)
    attention_mask = _checked_mask("attention_mask", inputs.attention_mask, tokens)
    if not has_source:
        return Inputs(tokens, attention_mask)
    name = "embedding" if settings.shared_embedding else "source_embedding"
    source = _checked_ids("source", inputs.source_and_mask[0], len(weights[f"{name}.tokens.weight"]), settings.context)
    if len(source) != len(tokens):
        raise ValueError(
            f"source has {len(source)} rows, but tokens has {len(tokens)}: give one source row for each row of tokens"
        )
    return Inputs(tokens, None, source, _checked_mask("source_attention_mask", inputs.source_attention_mask, source))


def _checked_ids(name: str, ids: Ints, vocab_size: int, context: int) -> Ints:
    array = np.asarray(ids)
    if array.ndim != 2 or array.dtype.kind not in "iu" or array.size == 0:
        raise ValueError(
            f"{name} is {array.dtype} of shape {array.shape}: give integers of shape (rows, tokens), both at least 1"
        )
    if array.min() < 0 or array.max() >= vocab_size:
        raise ValueError(
            f"{name} has ids from {array.min()} to {array.max()}: the vocabulary has 0 to {vocab_size - 1}"
        )
    if array.shape[1] > context:
        raise ValueError(f"{name} has rows of {array.shape[1]} tokens, but the context is {context}: shorten them")
    return array.astype(np.int64)


def _checked_mask(name: str, mask: Bools | None, ids: Ints) -> Bools | None:
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.shape != ids.shape or array.dtype != np.bool_:
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}: give bool of shape {ids.shape}")
    return array
