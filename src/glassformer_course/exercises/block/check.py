"""Reference functions and test cases for `feedforward` and `block`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.base.config import ModelConfig
from glassformer.numpy_reference import feedforward as layer
from glassformer.numpy_reference.arrays import Array, Weights
from glassformer.numpy_reference.attention import self_allowed
from glassformer.numpy_reference.block import BlockContext
from glassformer.numpy_reference.block import block as reference_block
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture

NAMES = {
    "attention_gain": "attention_norm.weight",
    "query": "attention.query.weight",
    "key": "attention.key.weight",
    "value": "attention.value.weight",
    "output": "attention.output.weight",
    "feedforward_gain": "feedforward_norm.weight",
    "up": "feedforward.up.weight",
    "down": "feedforward.down.weight",
}


def feedforward(x: Array, weights: Weights) -> Array:
    """Compute the feed-forward layer with the NumPy reference, whose matrices are transposed: (T, D) -> (T, D)."""
    return layer.feedforward(x[None], {f"{name}.weight": weights[name].T for name in ("up", "down")}, "relu")[0][0]


def block(x: Array, weights: Weights) -> Array:
    """Compute a block of the NumPy reference with one head and without position encoding: (T, D) -> (T, D)."""
    D, K = weights["query"].shape
    settings = ModelConfig(
        width=D, heads=1, head_width=K, norm="rmsnorm", norm_eps=1e-6, activation="relu", positions="none"
    )
    theirs = {NAMES[name]: weight.T for name, weight in weights.items()}  # a vector's .T is itself
    positions = np.arange(len(x))[None]
    view = BlockContext(self_allowed(positions, np.ones_like(positions, dtype=bool), causal=True, window=None))
    return reference_block(x[None], theirs, settings, view, "dec.0")[0][0]


def random_weights(rng: np.random.Generator, D: int, K: int, F: int) -> dict[str, Array]:
    """Return random weights of one block, with gains near 1."""
    shapes = {"query": (D, K), "key": (D, K), "value": (D, K), "output": (K, D), "up": (D, F), "down": (F, D)}
    weights = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    return weights | {name: 1 + rng.normal(size=D) / 3 for name in ("attention_gain", "feedforward_gain")}


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for the feed-forward layer, then for the block, including outputs of 0 and changed later tokens."""
    x = np.array([[1.0, 2.0]])
    tiny = {"up": np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), "down": np.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])}
    yield call("feedforward", x, tiny, note="where x is 1, 2 and the third hidden unit is -1, so ReLU sets it to 0")
    for T, D, F in [(3, 4, 7), (1, 5, 3), (5, 2, 11), (4, 4, 4)]:
        yield call(
            "feedforward", rng.normal(size=(T, D)), random_weights(rng, D, 3, F), note="where the numbers are random"
        )

    for T, D, K, F in [(1, 2, 1, 3), (3, 4, 3, 7), (5, 4, 2, 5), (2, 7, 7, 7), (7, 3, 5, 11)]:
        yield call("block", rng.normal(size=(T, D)), random_weights(rng, D, K, F), note="where the numbers are random")
        yield call(
            "block", rng.normal(size=(T, D)) * 30, random_weights(rng, D, K, F), note="where the numbers of x are large"
        )
    x = rng.normal(size=(5, 4))
    weights = random_weights(rng, 4, 3, 7)
    silent = {name: np.zeros_like(weights[name]) for name in ("output", "down")}
    yield call("block", x, weights | {"output": silent["output"]}, note="where the output of attention is 0")
    yield call("block", x, weights | {"down": silent["down"]}, note="where the output of the feed-forward layer is 0")
    yield call(
        "block",
        x,
        weights | silent,
        note="where both outputs are 0: the result is exactly x",
        relative=0,
        absolute=0,
    )
    yield call("block", np.zeros((3, 4)), weights, note="where x is 0")
    other = np.concatenate([x[:3], rng.normal(size=(2, 4))])
    yield Case(
        lambda f: [f.block(x, weights)[:3], f.block(other, weights)[:3]],
        note="where only tokens 3 and 4 differ: the first three rows of both must be equal",
        description="[block(x, weights)[:3], block(other, weights)[:3]]",
    )


def picture() -> Picture:
    """Draw the stream before a block, the outputs of its attention and feed-forward layers, and the stream after it."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3, 4))
    weights = random_weights(rng, 4, 4, 8)
    tokens = ["the", "cat", "sat"]
    between = block(x, weights | {"down": np.zeros((8, 4))})
    after = block(x, weights)
    return Picture(
        [
            Panel("input stream", x, tokens),
            Panel("+ attention", between - x, tokens),
            Panel("+ feed-forward", after - between, tokens),
            Panel("= output stream", after, tokens),
        ],
        caption="A block only adds to the stream and never replaces it: the last matrix is the sum of the other three.",
    )
