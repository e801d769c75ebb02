"""Reference functions and test cases for the training loop, from the layers of the NumPy reference."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference.arrays import Array, Ints, Weights
from glassformer.numpy_reference.attention import attend, attend_backward
from glassformer.numpy_reference.linear import Linear, linear, linear_backward, look_up_backward
from glassformer.numpy_reference.loss import cross_entropy, cross_entropy_backward, log_softmax
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

PROJECTIONS = ("query", "key", "value")
MEMORIZED = np.array([[0, 1, 2, 3, 1, 4, 2, 0, 5], [2, 1, 0, 6, 6, 3, 5, 1, 0]])


def loss_and_gradients(weights: Weights, rows: Ints) -> tuple[float, dict[str, Array]]:
    """Return the mean loss and the gradients, computed with layers of the NumPy reference and their backward passes."""
    inputs = rows[:, :-1]
    targets = rows[:, 1:]
    T = inputs.shape[1]
    x = weights["embedding"][inputs] + weights["position"][:T]  # (B, T, D)
    projected = {name: _product(x, weights[name]) for name in PROJECTIONS}
    q, k, v = (projected[name][0][:, None] for name in PROJECTIONS)  # (B, 1, T, K)
    mixed, saved = attend(q, k, v, np.tri(T, dtype=bool))  # (B, 1, T, D)
    logits, output = _product(x + mixed[:, 0], weights["output"])  # (B, T, V)
    loss, saved_loss = cross_entropy(logits, targets)

    dx, matrix = linear_backward(cross_entropy_backward(saved_loss), output)  # (B, T, D)
    gradients = {"output": matrix["weight"].T}
    for name, arriving in zip(PROJECTIONS, attend_backward(dx[:, None], saved)[:3], strict=True):
        through, matrix = linear_backward(arriving[:, 0], projected[name][1])  # (B, T, D)
        dx = dx + through
        gradients[name] = matrix["weight"].T
    gradients["embedding"] = look_up_backward(dx, inputs, weights["embedding"])
    gradients["position"] = np.zeros_like(weights["position"])
    gradients["position"][:T] = dx.sum(axis=0)
    return loss, gradients


def clip(gradients: Weights, max_norm: float) -> dict[str, Array]:
    """Return the gradients, scaled so that their joint norm is at most `max_norm`."""
    norm = math.hypot(*(float(number) for gradient in gradients.values() for number in gradient.ravel()))
    factor = max_norm / norm if norm > max_norm else 1.0
    return {name: factor * gradient for name, gradient in gradients.items()}


def train(
    weights: Weights, rows: Ints, steps: int, rate: float, max_norm: float
) -> tuple[dict[str, Array], list[float]]:
    """Run plain gradient steps with clipping; return the weights and the loss before each step."""
    current = dict(weights)
    losses = []
    for _ in range(steps):
        loss, gradients = loss_and_gradients(current, rows)
        clipped = clip(gradients, max_norm)
        current = {name: current[name] - rate * clipped[name] for name in current}
        losses.append(loss)
    return current, losses


def _product(x: Array, matrix: Array) -> tuple[Array, Linear]:
    return linear(x, {"weight": matrix.T})


def random_weights(rng: np.random.Generator, V: int, D: int, K: int, positions: int) -> dict[str, Array]:
    """Return initial weights of a decoder."""
    shapes = {"embedding": (V, D), "position": (positions, D), "query": (D, K), "key": (D, K), "value": (D, D)}
    return {name: rng.normal(size=shape) * 0.5 for name, shape in (shapes | {"output": (D, V)}).items()}


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for the loss, for clipping, then for whole training runs.

    The run that memorizes its rows comes last, after the cases that identify mistakes.
    """
    yield from _losses(rng)
    yield from _clips(rng)
    yield from _trainings(rng)


def _losses(rng: np.random.Generator) -> Iterator[Case]:
    initial = {name: array * 0 for name, array in random_weights(rng, 2, 2, 1, 2).items()} | {"embedding": np.eye(2)}
    yield call(
        "loss_and_gradients",
        initial,
        np.array([[0, 1, 0]]),
        note="where the row is 0, 1, 0 and the output layer is 0: loss ln 2",
    )
    for B, T, V, D, K in [
        (1, 3, 5, 4, 3),
        (2, 5, 7, 3, 2),
        (3, 2, 4, 5, 7),
        (5, 1, 3, 2, 3),
        (1, 7, 11, 4, 4),
        (4, 4, 4, 4, 4),
    ]:
        rows = rng.integers(0, V, size=(B, T + 1))
        yield call("loss_and_gradients", random_weights(rng, V, D, K, T), rows, note="where the numbers are random")
    weights = random_weights(rng, 5, 4, 3, 7)
    rows = rng.integers(0, 5, size=(2, 4))
    yield call("loss_and_gradients", weights, rows, note="where the model has 7 positions and reads 3 tokens")
    large = weights | {"output": weights["output"] * 1_000}
    yield call("loss_and_gradients", large, rows, note="where logits are in the thousands")
    yield call("loss_and_gradients", weights, np.full((2, 4), 3), note="where all tokens are the same")


def _clips(rng: np.random.Generator) -> Iterator[Case]:
    pair = {"a": np.array([3.0]), "b": np.array([[0.0, 4.0]])}
    yield call("clip", pair, 1.0, note="where the gradients are 3 and 0, 4: their joint norm is 5")
    yield call("clip", pair, 50.0, note="where the norm is below the maximum")
    for max_norm in (0.1, 1.0, 2.5):
        gradients = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=7) * 5, "c": rng.normal(size=(2, 2)) * 0.01}
        yield call("clip", gradients, max_norm, note="where the numbers are random")
    yield call("clip", pair, 5.0, note="where the norm is exactly the maximum")
    yield call("clip", {"a": np.zeros(3), "b": np.zeros((2, 2))}, 1.0, note="where all gradients are 0")
    yield call(
        "clip", {"a": rng.normal(size=(3, 2)) * 1e6}, 1.0, note="where there is one array with a very large norm"
    )


def _trainings(rng: np.random.Generator) -> Iterator[Case]:
    settings = [(3, 0.5, 0.3), (2, 0.2, 0.1), (2, 0.5, 0.05), (3, 0.1, 100.0), (2, 1.0, 100.0), (1, 0.5, 100.0)]
    for number, (steps, rate, max_norm) in enumerate([*settings, *settings[:4], (1, 2.0, 0.1), (0, 0.5, 1.0)]):
        rows = rng.integers(0, 5, size=(1 + number % 3, 4))
        weights = random_weights(rng, 5, 4, 3, 3)
        note = f"where {counted(steps, 'steps are taken', 'step is taken')}"
        yield call("train", weights, rows, steps, rate, max_norm, note=note)
    # small, like initial weights
    weights = {name: array / 5 for name, array in random_weights(rng, 7, 8, 4, 8).items()}

    def memorize(functions: Functions) -> tuple[list[float], bool]:
        losses = functions.train(weights, MEMORIZED, 100, 1.0, 1.0)[1]
        return losses[::25], losses[-1] < 0.05

    yield Case(
        memorize,
        note="where 100 steps must memorize two rows, from a loss of about ln 7 to less than 0.05",
        description="(losses[::25], losses[-1] < 0.05) of train(weights, rows, 100, 1.0, 1.0)",
    )


def picture() -> Picture:
    """Draw the next-letter probabilities after each letter of "hello!", before and after training on it."""
    letters = "helo!"
    rows = np.array([[letters.index(letter) for letter in "hello!"]])
    initial = random_weights(np.random.default_rng(1), 5, 8, 4, 5)
    trained = train(initial, rows, 60, 1.0, 1.0)[0]
    panels = []
    for title, weights in (("before", initial), ("after 60 steps", trained)):
        x = weights["embedding"][rows[:, :-1]] + weights["position"]
        q, k, v = (_product(x, weights[name])[0][:, None] for name in PROJECTIONS)
        h = x + attend(q, k, v, np.tri(5, dtype=bool))[0][:, 0]
        panels.append(Panel(title, np.exp(log_softmax(h @ weights["output"]))[0], list("hello"), list(letters)))
    return Picture(
        panels,
        caption='Each row is the probability of each next letter. After training on "hello!", the model predicts l '
        "after the first l and o after the second: it uses more than the last letter.",
    )
