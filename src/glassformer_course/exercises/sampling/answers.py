"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _softmax(scores):
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def _greedy(logits):
    result = np.zeros(len(logits))
    result[np.argmax(logits)] = 1.0
    return result


def _top_k(scores, k):
    top = np.argsort(-scores, kind="stable")[:k]
    result = np.full(len(scores), -np.inf)
    result[top] = scores[top]
    return result


def _top_p(probabilities, p):
    """Keep each token if the total probability of the tokens before it is less than p; do not renormalize."""
    if p is None:
        return probabilities
    order = np.argsort(-probabilities, kind="stable")
    before = np.cumsum(probabilities[order]) - probabilities[order]
    keep = order[before < p - 1e-9]
    result = np.zeros(len(probabilities))
    result[keep] = probabilities[keep]
    return result


def _p_first(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    scores = (logits - logits.max()) / temperature
    probabilities = _top_p(_softmax(scores), top_p)
    probabilities = np.where(np.isfinite(_top_k(scores, top_k)), probabilities, 0.0)
    return probabilities / probabilities.sum()


def _temperature_last(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    probabilities = _top_p(_softmax(_top_k(logits, top_k)), top_p)
    exponentials = np.where(probabilities > 0, (probabilities / probabilities.max()) ** (1 / temperature), 0.0)
    return exponentials / exponentials.sum()


def _times_temperature(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    probabilities = _top_p(_softmax(_top_k((logits - logits.max()) * temperature, top_k)), top_p)
    return probabilities / probabilities.sum()


def _not_renormalized(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    scores = (logits - logits.max()) / temperature
    probabilities = np.where(np.isfinite(_top_k(scores, top_k)), _softmax(scores), 0.0)
    selected = _top_p(probabilities / probabilities.sum(), top_p)
    return np.where(selected > 0, probabilities, 0.0)


def _without_the_one_that_reaches(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    probabilities = _softmax(_top_k((logits - logits.max()) / temperature, top_k))
    if top_p is not None:
        order = np.argsort(-probabilities, kind="stable")
        keep = np.cumsum(probabilities[order]) <= top_p + 1e-9
        keep[0] = True
        probabilities[order[~keep]] = 0.0
    return probabilities / probabilities.sum()


def _one_too_many(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    probabilities = _softmax(_top_k((logits - logits.max()) / temperature, top_k))
    if top_p is not None:
        order = np.argsort(-probabilities, kind="stable")
        probabilities[order[np.cumsum(probabilities[order]) - probabilities[order] > top_p + 1e-9]] = 0.0
    return probabilities / probabilities.sum()


def _by_threshold(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    scores = (logits - logits.max()) / temperature
    if top_k is not None and top_k < len(scores):
        scores = np.where(scores >= np.sort(scores)[-top_k], scores, -np.inf)
    probabilities = _top_p(_softmax(scores), top_p)
    return probabilities / probabilities.sum()


def _at_least(probabilities, u):
    return int(np.argmax(np.cumsum(probabilities) >= u))


def _with_masks(logits, temperature, top_k, top_p):
    if temperature == 0:
        return _greedy(logits)
    probabilities = _top_p(_softmax(_top_k((logits - logits.max()) / temperature, top_k)), top_p)
    return probabilities / probabilities.sum()


def _one_at_a_time(logits, temperature, top_k, top_p):
    left = {token: float(logit) for token, logit in enumerate(logits)}
    top_logits = {}
    count = 1 if temperature == 0 else len(left) if top_k is None else min(top_k, len(left))
    for _ in range(count):
        best = max(left, key=lambda token: left[token])  # on ties, the first
        top_logits[best] = left.pop(best)
    highest = max(top_logits.values())
    sizes = {
        token: 1.0 if temperature == 0 else np.exp((each - highest) / temperature) for token, each in top_logits.items()
    }
    normalizer = sum(sizes.values())
    total = 0.0
    result = [0.0] * len(logits)
    for token, size in sizes.items():
        if top_p is None or not total or total < top_p - 1e-9:
            result[token] = size
        total += size / normalizer
    return np.array(result) / sum(result)


def _by_hand(probabilities, u):
    remaining = u
    last = None
    for token, probability in enumerate(probabilities.tolist()):
        if probability:
            last = token
            if remaining < probability:
                break
            remaining -= probability
    return last


def _by_comparison(probabilities, u):
    passed = np.cumsum(probabilities) > u
    return int(passed.argmax()) if passed.any() else int(np.nonzero(probabilities)[0].max())


MISTAKES = [
    Mistake(
        "top-p before top-k",
        "Top-p was applied to the whole vocabulary. Top-k comes first: its tokens are renormalized to sum to 1, and "
        "top-p is a fraction of that.",
        {"distribution": _p_first},
    ),
    Mistake(
        "temperature after top-k and top-p",
        "Top-p must be applied to the distribution after the temperature: a flatter one keeps more tokens. Divide the "
        "logits by the temperature first.",
        {"distribution": _temperature_last},
    ),
    Mistake(
        "multiplied by the temperature",
        "A low temperature must sharpen the distribution, so divide the logits by it: multiplying by 0.5 flattens it.",
        {"distribution": _times_temperature},
    ),
    Mistake(
        "not renormalized",
        "The kept tokens have their old probabilities, which no longer sum to 1. Divide by their sum at the end.",
        {"distribution": _not_renormalized},
    ),
    Mistake(
        "the token that reaches top-p is dropped",
        "This keeps tokens while their sum is at most top_p, so it keeps too few, or none if the first token alone has "
        "more. Compare the sum *before* each token, the cumulative sum minus its own probability, with top_p.",
        {"distribution": _without_the_one_that_reaches},
    ),
    Mistake(
        "one token too many",
        "The kept tokens have exactly reached top_p, but one more is kept. Keep a token only if the sum before it is "
        "less than top_p (<, not <=).",
        {"distribution": _one_too_many},
    ),
    Mistake(
        "top-k keeps all equal logits",
        "Comparing with the k-th largest logit keeps more than k tokens if several are equal to it. Take the first k "
        "of a stable sort.",
        {"distribution": _by_threshold},
    ),
    Mistake(
        "an impossible token is sampled",
        "With u = 0 the first token is chosen even if its probability is 0, because 0 >= 0. The cumulative sum must be "
        "greater than u: searchsorted(..., side='right').",
        {"draw": _at_least},
    ),
]
ALSO_RIGHT = [
    {"distribution": _with_masks, "draw": _by_comparison},
    {"distribution": _one_at_a_time, "draw": _by_hand},
]
