"""Reference functions and test cases for `distribution` and `draw`."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, fsum

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

TOLERANCE = 1e-9  # a sum that misses top_p by less than this counts as reaching it


def distribution(logits: Array, temperature: float, top_k: int | None, top_p: float | None) -> Array:
    """Return probabilities after temperature, top-k, softmax and top-p: (V,) -> (V,)."""
    ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    result = np.zeros(len(logits))
    if temperature == 0:
        result[ranked[0]] = 1.0
        return result
    if top_k is not None:
        ranked = ranked[:top_k]
    exponentials = [exp((logits[token] - logits[ranked[0]]) / temperature) for token in ranked]
    probabilities = [each / fsum(exponentials) for each in exponentials]
    count = len(probabilities)
    if top_p is not None:
        count = next((n for n in range(1, count) if fsum(probabilities[:n]) >= top_p - TOLERANCE), count)
    for token, probability in zip(ranked[:count], probabilities, strict=False):
        result[token] = probability / fsum(probabilities[:count])
    return result


def draw(probabilities: Array, u: float) -> int:
    """Return the first token at which the cumulative sum of the probabilities is greater than u.

    If rounding makes even the last sum too small, return the last token whose probability is not 0.
    """
    total = 0.0
    last = 0
    for token, probability in enumerate(probabilities.tolist()):
        total += probability
        if probability > 0:
            last = token
        if total > u:
            return token
    return last


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with single and combined settings, ties, exact limits and extreme logits, then cases for `draw`."""
    four = np.log(np.array([4.0, 2.0, 1.0, 1.0]))
    yield call(
        "distribution", four, 1.0, None, None, note="where the probabilities are 4 : 2 : 1 : 1 and all tokens are kept"
    )
    yield call("distribution", four, 0.5, None, None, note="where temperature 0.5 squares the ratios 4 : 2 : 1 : 1")
    yield call("distribution", four, 1.0, 2, None, note="where top_k is 2 and the probabilities are 4 : 2 : 1 : 1")
    yield call(
        "distribution", four, 1.0, None, 0.6, note="where the tokens with probability 1/2 and 1/4 together reach 0.6"
    )
    yield call("distribution", four, 1.0, None, 0.3, note="where the most likely token alone has more than top_p")
    equal = np.zeros(4)
    yield call("distribution", equal, 1.0, None, 0.5, note="where two of four equally likely tokens have exactly top_p")
    yield call("distribution", equal, 1.0, 3, None, note="where equal logits are tied at top_k")
    sixty = np.tile([0.0, 1.0], 30)
    yield call("distribution", sixty, 1.0, 7, None, note="where thirty of sixty logits are tied at top_k")
    ten = np.zeros(10)
    yield call(
        "distribution", ten, 1.0, None, 0.8, note="where eight of ten equally likely tokens miss top_p only by rounding"
    )
    yield call(
        "distribution",
        np.array([1.0, 5.0, 5.0]),
        0.0,
        None,
        None,
        note="where the temperature is 0 and logits are equal",
    )
    yield call("distribution", four, 1.0, 2, 0.6, note="where top_p applies after top_k: 2/3 alone reaches 0.6")
    yield call(
        "distribution", four, 2.0, 3, 0.8, note="where the temperature makes a third token necessary to reach 0.8"
    )
    for V, temperature, top_k, top_p in [(7, 0.7, 5, 0.8), (11, 1.5, None, 0.45), (13, 1.0, 4, None), (5, 0.9, 9, 1.0)]:
        note = f"where {V} random logits have temperature {temperature}, top_k {top_k} and top_p {top_p}"
        yield call("distribution", rng.normal(size=V) * 2, temperature, top_k, top_p, note=note)
    yield call(
        "distribution",
        rng.normal(size=6) + 10_000,
        1e-6,
        None,
        0.9,
        note="where logits are about 10,000 and the temperature is 1e-6",
    )
    blocked = np.array([-np.inf, 2.0, -np.inf, 1.0])
    yield call("distribution", blocked, 1.0, 3, 0.999999, note="where some logits are -inf")
    yield call("distribution", blocked, 0.0, None, None, note="where the temperature is 0 and some logits are -inf")
    thirds = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for u in (0.0, 0.1, 0.25, 0.7, 0.75, 0.99):
        yield call("draw", thirds, u, note=f"where u is {u} and the first token has probability 0")
    below_one = float(np.nextafter(1.0, 0.0))
    yield call("draw", np.array([0.1] * 10 + [0.0]), below_one, note="where ten times 0.1 sums to less than 1")
    uniforms = rng.random(50)
    logits = rng.normal(size=9)

    def tokens(functions: Functions) -> list[int]:
        probabilities = functions.distribution(logits, 0.8, 6, 0.95)
        return [functions.draw(probabilities, float(u)) for u in uniforms]

    yield Case(tokens, "where 50 tokens are sampled from nine logits", "draw(distribution(logits, 0.8, 6, 0.95), u)")


def picture() -> Picture:
    """Draw one distribution under different settings of temperature, top-k and top-p."""
    words = ["Paris", "Lyon", "the", "France", "a"]
    logits = np.array([3.0, 2.0, 1.5, 1.0, 0.0])
    settings: list[tuple[str, float, int | None, float | None]] = [
        ("temperature 1", 1.0, None, None),
        ("temperature 0.5", 0.5, None, None),
        ("temperature 2", 2.0, None, None),
        ("top-k 3", 1.0, 3, None),
        ("top-p 0.8", 1.0, None, 0.8),
        ("temperature 0", 0.0, None, None),
    ]
    rows = [distribution(logits, tau, k, p) for _, tau, k, p in settings]
    return Picture(
        [Panel("logits", logits, columns=words), Panel("probabilities", rows, [name for name, *_ in settings], words)],
        caption="A low temperature sharpens the distribution, a high one flattens it. Top-k keeps a fixed number of "
        "tokens, top-p a fraction of the probability.",
    )
