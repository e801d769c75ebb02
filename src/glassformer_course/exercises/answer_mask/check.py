"""Reference functions and test cases for `row` and `answer_loss`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, fsum, log

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference.arrays import Array, Bools, Ints
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

USER = "user"
ASSISTANT = "assistant"


def row(roles: Sequence[str], messages: Sequence[Sequence[int]], end: int) -> tuple[Ints, Ints, Bools]:
    """Return inputs, targets and counts, computed token by token: (T,) each."""
    ids = [end]
    counts = [False]
    for role, message in zip(roles, messages, strict=True):
        for token in message:
            ids.append(token)
            counts.append(role == ASSISTANT)
        ids.append(end)
        counts.append(role == ASSISTANT)
    T = len(ids) - 1
    inputs = np.array([ids[i] for i in range(T)], dtype=np.int64)
    targets = np.array([ids[i + 1] for i in range(T)], dtype=np.int64)
    return inputs, targets, np.array([counts[i + 1] for i in range(T)], dtype=np.bool_)


def answer_loss(logits: Array, targets: Ints, counts: Bools) -> float:
    """Return the mean of -ln p over the positions that count: (T, V), (T,), (T,) -> float."""
    losses = []
    for numbers, target, is_counted in zip(logits.tolist(), targets.tolist(), counts.tolist(), strict=True):
        if is_counted:
            largest = max(numbers)
            losses.append(largest + log(fsum(exp(each - largest) for each in numbers)) - numbers[target])
    return fsum(losses) / len(losses) if losses else 0.0


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for `row` (one or several answers, empty messages, only questions), then cases for the loss."""
    yield call("row", [USER, ASSISTANT], [[5, 6], [7]], 0, note="where the question has two tokens and the answer one")
    yield call("row", [USER, ASSISTANT] * 2, [[5], [6, 7], [8], [9]], 0, note="where there are two answers")
    yield call("row", [ASSISTANT, USER], [[5, 6], [7]], 0, note="where the conversation begins with an answer")
    yield call("row", [USER, USER, ASSISTANT], [[5], [6], [7]], 3, note="where there are two questions in a row")
    yield call("row", [USER, ASSISTANT], [[5, 6], []], 0, note="where the answer is empty: only its end counts")
    yield call("row", [USER], [[5, 6]], 0, note="where there is no answer")
    yield call("row", [USER, ASSISTANT], [[0, 5], [5, 0]], 0, note="where messages contain the end token")
    for turns in (1, 3, 8):
        yield call(
            "row",
            *_random_inputs(rng, turns),
            1,
            note=f"where {counted(turns, 'questions and answers are random', 'question and answer are random')}",
        )
    even = np.full((3, 4), 1.5)
    yield call(
        "answer_loss",
        even,
        np.array([1, 2, 3]),
        np.array([False, True, True]),
        note="where all logits are equal and two positions count: ln 4",
    )
    yield call(
        "answer_loss",
        np.array([[0.0, 9.0], [0.0, 0.0]]),
        np.array([0, 1]),
        np.array([False, True]),
        note="where the position that does not count has a large loss",
    )
    yield call("answer_loss", even, np.array([0, 1, 2]), np.zeros(3, dtype=np.bool_), note="where no position counts")
    for T, V in [(5, 3), (11, 7), (60, 13)]:
        counts = rng.random(T) < 0.4
        counts[-1] = True
        yield call(
            "answer_loss", rng.normal(size=(T, V)) * 3, rng.integers(V, size=T), counts, note=f"where T is {T}, V {V}"
        )
    far = np.array([[10_000.0, 9_999.0, 0.0], [1.0, 2.0, 3.0], [-9_999.0, -9_998.0, -10_000.0]])
    all_count = np.ones(3, dtype=np.bool_)
    yield call(
        "answer_loss",
        far,
        np.array([1, 0, 2]),
        all_count,
        note="where the logits of different positions are 10,000 apart",
    )
    roles, messages = _random_inputs(rng, 4)
    logits = rng.normal(size=(sum(map(len, messages)) + len(messages), 50))

    def both(functions: Functions) -> float:
        _, targets, counts = functions.row(roles, messages, 1)
        return float(functions.answer_loss(logits, targets, counts))

    yield Case(both, "where the loss uses a row with four answers", "answer_loss(logits, *row(...)[1:])")


def _random_inputs(rng: np.random.Generator, turns: int) -> tuple[list[str], list[list[int]]]:
    """Return roles and random messages of `turns` questions and answers."""
    messages = [rng.integers(2, 50, size=rng.integers(1, 7)).tolist() for _ in range(2 * turns)]
    return [USER, ASSISTANT] * turns, messages


def picture() -> Picture:
    """Draw a conversation as a row, with the targets that count."""
    words = ["[end]", "Where", "is", "Ada", "?", "[end]", "In", "Oslo", "[end]", "Thanks", "[end]"]
    messages = [[1, 2, 3, 4], [6, 7], [9]]
    inputs, targets, counts = row([USER, ASSISTANT, USER], messages, 0)
    names = [words[number + 1] for number in range(len(targets))]
    read = words[: len(inputs)]
    return Picture(
        [
            Panel("reads", [inputs], ["token"], read),
            Panel("predicts", [targets, counts], ["token", "counts"], names),
        ],
        caption="The loss counts at In, Oslo and the end after them. The question, its end and the thanks are only "
        "inputs: they do not count.",
    )
