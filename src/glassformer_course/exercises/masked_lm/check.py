"""Reference functions and test cases for `hide` and `loss`."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, fsum, log
from typing import Any

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference.arrays import Array, Bools, Ints
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

IGNORED = -100
CHOSEN = 0.15
HIDDEN = 0.8
SWAPPED = 0.9


def hide(tokens: Ints, special: Bools, choose: Array, action: Array, others: Ints, mask_id: int) -> tuple[Ints, Ints]:
    """Return the inputs and the labels, computed token by token: (T,), (T,)."""
    inputs = tokens.copy()
    labels = np.full(len(tokens), IGNORED, dtype=np.int64)
    for i, token in enumerate(tokens):
        if special[i] or choose[i] >= CHOSEN:
            continue
        labels[i] = token
        if action[i] < HIDDEN:
            inputs[i] = mask_id
        elif action[i] < SWAPPED:
            inputs[i] = others[i]
    return inputs, labels


def loss(logits: Array, labels: Ints) -> float:
    """Return the mean of -ln p over the labels that are not -100: (T, V), (T,) -> float."""
    losses = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        if label != IGNORED:
            largest = max(row)
            losses.append(largest + log(fsum(exp(each - largest) for each in row)) - row[label])
    return fsum(losses) / len(losses) if losses else 0.0


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for `hide` (kinds of replacement, limits, special tokens, random texts), then cases for the loss."""
    tokens = np.array([10, 11, 12, 13, 14])
    plain = np.zeros(5, dtype=np.bool_)
    choose = np.array([0.1, 0.1, 0.1, 0.5, 0.5])
    action = np.array([0.2, 0.85, 0.95, 0.2, 0.85])
    others = np.array([20, 21, 22, 23, 24])
    yield call(
        "hide",
        tokens,
        plain,
        choose,
        action,
        others,
        3,
        note="where the first three tokens are chosen: one is masked, one becomes another, one stays the same",
    )
    yield call(
        "hide",
        tokens,
        np.array([True, False, False, False, True]),
        np.zeros(5),
        action,
        others,
        3,
        note="where all tokens are chosen except the first and the last, which are special",
    )
    edges = np.array([0.15, np.nextafter(0.15, 0), 0.0, 0.0, 0.0])
    yield call(
        "hide",
        tokens,
        plain,
        edges,
        np.array([0, 0, 0.8, 0.9, 0.0]),
        others,
        3,
        note="where numbers are exactly at the limits",
    )
    for T in (1, 7, 40, 400):
        note = f"where a text of {counted(T, 'tokens')} is random"
        yield call("hide", *_random_inputs(rng, T), 4, note=note)
        yield Case(
            _count_kinds(_random_inputs(rng, T)), f"{note}, and the result is the counts of each kind of token", "hide"
        )
    nothing = np.full((2, 4), 1.5)
    yield call("loss", nothing, np.array([-100, 2]), note="where all logits are equal and one position counts: ln 4")
    yield call(
        "loss", np.array([[0.0, 0.0], [9.0, 1.0]]), np.array([1, -100]), note="where the second position is not chosen"
    )
    yield call("loss", nothing, np.array([-100, -100]), note="where no token is chosen")
    for T, V in [(5, 3), (11, 7), (60, 13)]:
        labels = np.where(rng.random(T) < 0.3, rng.integers(V, size=T), IGNORED)
        labels[0] = V - 1
        yield call("loss", rng.normal(size=(T, V)) * 3, labels, note=f"where {T} positions have random labels")
    yield call(
        "loss", rng.normal(size=(4, 5)) * 9 + 9_000, np.array([0, 4, -100, 1]), note="where logits are about 9,000"
    )
    far = np.array([[10_000.0, 9_999.0, 0.0], [1.0, 2.0, 3.0], [-9_999.0, -9_998.0, -10_000.0]])
    yield call("loss", far, np.array([1, 0, 2]), note="where the logits of different positions are 10,000 apart")
    inputs_of_hide = _random_inputs(rng, 60)
    logits = rng.normal(size=(60, 101))

    def both(functions: Functions) -> float:
        return float(functions.loss(logits, functions.hide(*inputs_of_hide, 4)[1]))

    yield Case(both, "where the loss uses the labels that hide returns for 60 tokens", "loss(logits, hide(...)[1])")


def _random_inputs(rng: np.random.Generator, T: int) -> tuple[Ints, Bools, Array, Array, Ints]:
    """Return random arguments of `hide`: tokens 0 to 4 are special, and more tokens are chosen than usual."""
    tokens = rng.integers(0, 101, size=T)
    return tokens, tokens < 5, rng.random(T) * 0.4, rng.random(T), rng.integers(5, 101, size=T)


def _count_kinds(inputs_of_hide: tuple[Ints, Bools, Array, Array, Ints]) -> Any:
    tokens, special = inputs_of_hide[:2]

    def ask(functions: Functions) -> dict[str, int]:
        inputs, labels = functions.hide(*inputs_of_hide, 4)
        chosen = labels != IGNORED
        return {
            "chosen": int(chosen.sum()),
            "masked": int((chosen & (inputs == 4)).sum()),
            "shown": int((chosen & (inputs == tokens)).sum()),
            "changed though not chosen": int((~chosen & (inputs != tokens)).sum()),
            "special": int((chosen & special).sum()),
        }

    return ask


def picture() -> Picture:
    """Draw a short text, its masked inputs, and the positions that count in the loss."""
    words = ["[CLS]", "the", "cat", "sat", "on", "a", "mat", "[SEP]"]
    choose = np.array([0.01, 0.9, 0.1, 0.5, 0.05, 0.4, 0.12, 0.03])
    action = np.array([0.1, 0.3, 0.2, 0.6, 0.85, 0.1, 0.97, 0.5])
    special = np.array([word.startswith("[") for word in words])
    tokens = np.arange(len(words))
    inputs, labels = hide(tokens, special, choose, action, np.full(len(words), 90), 99)
    chosen = labels != IGNORED
    kinds = np.array([inputs == 99, inputs == 90, chosen & (inputs == tokens)], dtype=np.float64)
    return Picture(
        [
            Panel("the random numbers", [choose, action], ["choose", "action"], words),
            Panel("inputs of the chosen tokens", [*kinds, chosen], ["[MASK]", "another", "the same", "loss"], words),
        ],
        caption="A token is chosen if its number is below 0.15 and it is not special: 'cat' is masked, 'on' is "
        "replaced by another word, and 'mat' stays the same. All three count in the loss.",
    )
