"""What a forward pass is given, checked first: NumPy itself would take a negative id for one from the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights
from glassformer.numpy_reference.initial import shapes
from glassformer.numpy_reference.settings import Settings


@dataclass(frozen=True)
class Inputs:
    """The ids of one forward pass.

    Attributes:
        tokens: (B, T); of an encoder-decoder, those of the target.
        real: (B, T) False at padding; None: all real.
        source, real_source: (B, S) of an encoder-decoder.
    """

    tokens: Ints
    real: Bools | None = None
    source: Ints | None = None
    real_source: Bools | None = None

    @property
    def real_tokens(self) -> Bools:
        """(B, T), also where nothing was said of padding."""
        return np.ones(self.tokens.shape, dtype=np.bool_) if self.real is None else self.real

    @property
    def given_source(self) -> tuple[Ints, Bools]:
        """(B, S) each, also where nothing was said of padding."""
        if self.source is None:
            raise ValueError("an encoder-decoder needs a source: give source=(B, S) ids")
        real = np.ones(self.source.shape, dtype=np.bool_) if self.real_source is None else self.real_source
        return self.source, real


def checked_weights(settings: Settings, weights: Weights) -> dict[str, Array]:
    """The weights in float64, if their names and shapes are those that the settings ask for."""
    if "embedding.tokens.weight" not in weights:
        raise ValueError("there is no weight embedding.tokens.weight: give those of a model's state_dict")
    source = weights.get("source_embedding.tokens.weight")
    wanted = shapes(
        settings, len(weights["embedding.tokens.weight"]), None if source is None else len(source), settings.classes
    )
    for name, shape in wanted.items():
        found = tuple(weights[name].shape) if name in weights else "missing"
        if found != shape:
            raise ValueError(f"the weight {name} is {found}, the settings ask for {shape}")
    extra = sorted(weights.keys() - wanted.keys())
    if extra:
        raise ValueError(f"the settings ask for no weight {extra[0]}: they are those of another model")
    return {name: np.asarray(weights[name], dtype=np.float64) for name in wanted}


def checked_inputs(settings: Settings, weights: Weights, inputs: Inputs) -> Inputs:
    """The inputs as arrays of the right kinds, if they fit the model."""
    pair = settings.family == "encoder-decoder"
    if pair and inputs.real is not None:
        raise ValueError("an encoder-decoder takes no real: padding of its target stands last, give real_source")
    if not pair and (inputs.source is not None or inputs.real_source is not None):
        raise ValueError(f"the {settings.family} family takes no source: give tokens and real")
    tokens = _ids("tokens", inputs.tokens, len(weights["embedding.tokens.weight"]), settings.context)
    real = _mask("real", inputs.real, tokens)
    if not pair:
        return Inputs(tokens, real)
    name = "embedding" if settings.shared_embedding else "source_embedding"
    source = _ids("source", inputs.given_source[0], len(weights[f"{name}.tokens.weight"]), settings.context)
    if len(source) != len(tokens):
        raise ValueError(f"there are {len(source)} sources and {len(tokens)} targets: give one for each")
    return Inputs(tokens, None, source, _mask("real_source", inputs.real_source, source))


def _ids(name: str, ids: Ints, vocabulary: int, context: int) -> Ints:
    found = np.asarray(ids)
    if found.ndim != 2 or found.dtype.kind not in "iu" or found.size == 0:
        raise ValueError(f"{name} is {found.dtype} of shape {found.shape}: give whole numbers of shape (rows, tokens)")
    if found.min() < 0 or found.max() >= vocabulary:
        raise ValueError(
            f"{name} has ids from {found.min()} to {found.max()}: the vocabulary has 0 to {vocabulary - 1}"
        )
    if found.shape[1] > context:
        raise ValueError(f"{name} has rows of {found.shape[1]} tokens, the context is {context}: cut them")
    return found.astype(np.int64)


def _mask(name: str, mask: Bools | None, ids: Ints) -> Bools | None:
    if mask is None:
        return None
    found = np.asarray(mask)
    if found.shape != ids.shape or found.dtype != np.bool_:
        raise ValueError(f"{name} is {found.dtype} of shape {found.shape}: give true or false for each of {ids.shape}")
    return found
