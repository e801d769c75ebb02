"""The checks of exercises: every shipped answer passes, and every known mistake is rejected by its name."""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from glassformer.base.wording import LEVELS
from glassformer_course.cases import Function
from glassformer_course.course import all_exercises, find
from glassformer_course.drawing import Picture
from glassformer_course.exercise import HINTS, Exercise
from glassformer_course.judging.marking import LocalFunctions, mark

EXERCISES = [pytest.param(exercise, id=exercise.name) for exercise in all_exercises()]
SEEDS = (0, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("exercise", EXERCISES)
def test_right_answers_pass(exercise: Exercise) -> None:
    right = exercise.right()
    assert len(right) >= 2
    for seed in SEEDS:
        for number, functions in enumerate(right):
            marks = mark(LocalFunctions(functions), exercise.reference, exercise.cases(seed), exercise.mistakes)
            assert marks.passed, (number, seed, marks.wrong)
            assert marks.cases_run >= 10


@pytest.mark.parametrize("exercise", EXERCISES)
def test_known_mistakes_are_refused_by_name(exercise: Exercise) -> None:
    mistakes = exercise.mistakes()
    assert len({mistake.name for mistake, _ in mistakes}) == len({id(mistake) for mistake, _ in mistakes}) >= 3
    for seed in SEEDS:
        for mistake, functions in mistakes:
            marks = mark(LocalFunctions(functions), exercise.reference, exercise.cases(seed), exercise.mistakes)
            assert marks.wrong is not None, f"{mistake.name} passes"
            assert marks.wrong.mistake is not None, f"{mistake.name} is refused without its name: {marks.wrong}"
            assert marks.wrong.mistake.name == mistake.name


def named_mistake(exercise: Exercise, functions: Mapping[str, Function], seed: int) -> str | None:
    """Return the name of the mistake that a check finds in these functions."""
    marks = mark(LocalFunctions(functions), exercise.reference, exercise.cases(seed), exercise.mistakes)
    return marks.wrong.mistake.name if marks.wrong and marks.wrong.mistake else None


def unwritten(*arguments: object) -> None:
    raise NotImplementedError("yours to write")


@pytest.mark.thorough
@pytest.mark.parametrize("exercise", [each for each in EXERCISES if len(find(str(each.id)).functions) > 1])
def test_mistakes_are_named_while_other_functions_are_unwritten(exercise: Exercise) -> None:
    """First with the functions up to the mistaken one, as in the order of the task; then with that one alone."""
    for mistake, functions in exercise.mistakes():
        last = max(exercise.functions.index(name) for name in mistake.wrong)
        later = dict.fromkeys(exercise.functions[last + 1 :], unwritten)
        others = dict.fromkeys(set(exercise.functions) - set(mistake.wrong), unwritten)
        for missing in (later, others):
            assert named_mistake(exercise, {**functions, **missing}, seed=0) == mistake.name, (mistake.name, missing)


def test_right_functions_with_unwritten_ones_are_unwritten_not_wrong() -> None:
    exercise = find("bigram")
    answers = LocalFunctions({**exercise.solved(), "nats_per_token": unwritten})
    marks = mark(answers, exercise.reference, exercise.cases(0), exercise.mistakes)
    assert marks.wrong is not None
    assert marks.wrong.fault is not None
    assert (marks.wrong.fault.sign, marks.cases_run) == ("NotImplementedError", marks.wrong.number)
    assert marks.cases_run > 1


CAUSAL = {
    "np.triu(np.ones((queries, keys)))": "the wrong triangle",
    "np.triu(np.ones((queries, keys), dtype=bool), keys - queries)": "the wrong triangle",
    "np.triu(np.ones((queries, keys)), k=1)": "True where attention is forbidden",
    "np.triu(np.ones((queries, keys)), k=1).astype(bool)": "True where attention is forbidden",
    "np.tril(np.ones((queries, keys)), k=keys - queries + 1) == 1": "the mask is one position ahead",
    "np.tril(np.ones((queries, keys), dtype=bool), k=1)": "the mask is one position ahead",
    "np.arange(keys) <= np.arange(1, queries + 1)[:, None] + keys - queries": "the mask is one position ahead",
    "np.tril(np.ones((queries, keys)))": "a mask of numbers",
    "np.tri(queries, keys, keys - queries, dtype=int)": "a mask of numbers",
    "np.tri(keys, keys, dtype=bool)": "the cache is ignored",
    "np.where(np.tri(queries, keys, keys - queries) == 0, -np.inf, 0.0)": "0 and -inf instead of True and False",
}


@pytest.mark.parametrize("expression", CAUSAL)
def test_masks_as_learners_write_them_are_named(expression: str) -> None:
    functions: dict[str, Function] = {}
    exec(f"import numpy as np\ndef causal(queries, keys):\n    return {expression}\n", functions)
    exercise = find("causal_mask")
    for softmax in (exercise.solved()["masked_softmax"], unwritten):
        answer = {"causal": functions["causal"], "masked_softmax": softmax}
        assert named_mistake(exercise, answer, seed=0) == CAUSAL[expression]


@pytest.mark.parametrize("axis", [0, -2])
def test_a_masked_softmax_over_columns_is_named(axis: int) -> None:
    def masked_softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        powers = np.exp(np.where(allowed, scores, -np.inf))
        return powers / powers.sum(axis=axis, keepdims=True)

    exercise = find("causal_mask")
    for causal in (exercise.solved()["causal"], unwritten):
        answer = {"causal": causal, "masked_softmax": masked_softmax}
        assert named_mistake(exercise, answer, seed=0) == "softmax over the queries"


def widest(picture: Picture) -> int:
    """Return the width of the widest panel in columns; panels are never wrapped."""
    return max(len(line) for panel in picture.panels for line in Picture([panel], "").text().splitlines())


@pytest.mark.parametrize("exercise", EXERCISES)
def test_exercise_pages_are_complete(exercise: Exercise) -> None:
    texts = [exercise.page(level) for level in LEVELS]
    assert all(len(text) > 100 for text in texts)
    assert len(set(texts)) == len(LEVELS)
    assert len({exercise.hint(number) for number in range(1, HINTS + 1)}) == HINTS
    assert exercise.summary
    picture = exercise.picture()
    ElementTree.fromstring(picture.svg())
    for width in (60, 100):
        assert " ".join(picture.caption.split()) in " ".join(picture.text(width).split())
        assert all(len(line) <= max(width, widest(picture)) for line in picture.text(width).splitlines())


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_stub_raises_in_place_of_the_solution(exercise: Exercise) -> None:
    assert exercise.functions
    ast.parse(exercise.stub)
    names: dict[str, object] = {}
    exec(compile(exercise.stub, "stub", "exec"), names)
    assert exercise.stub.count("raise NotImplementedError") == exercise.source.count("# BEGIN SOLUTION") >= 1
    assert "SOLUTION" not in exercise.stub + exercise.solution
    marks = mark(
        LocalFunctions({name: names[name] for name in exercise.functions}),  # type: ignore[misc]
        exercise.reference,
        exercise.cases(0),
        exercise.mistakes,
    )
    assert not marks.passed


def test_time_and_difficulty_follow_the_documented_formula() -> None:
    softmax = find("softmax")
    assert softmax.solution.count("\n    ") - softmax.stub.count("\n    ") == softmax.lines - 1 == 2
    assert (softmax.words, softmax.minutes, softmax.difficulty) == (67, 10, "easy")  # 0.67 + 6, rounded up
    byte_pairs = find("byte_pairs")
    assert (byte_pairs.lines, byte_pairs.words, byte_pairs.minutes) == (20, 181, 45)  # 1.81 + 40
    assert byte_pairs.effort == (
        "Hard, about 45 minutes: 4 functions with 20 lines in the shipped solution; 181 words of task"
    )
    assert {each.difficulty for each in all_exercises()} == {"easy", "medium", "hard"}


def test_the_table_of_measured_times_has_the_sizes_of_the_exercises() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "exercises.md"
    rows = [line.strip("| ").split(" | ") for line in path.read_text(encoding="utf-8").splitlines()[6:]]
    sizes = [
        [each.number, each.title, len(each.functions), each.lines, each.words, sum(1 for _ in each.cases(0))]
        for each in all_exercises()
    ]
    assert [row[:-1] for row in rows[1:]] == [[str(value) for value in size] for size in sizes]


FALSE_NAMES = {
    "sampling": ("probabilities = exponentials / exponentials.sum()", "probabilities = exponentials"),
    "padding": ("exponentials.sum(axis=-1, keepdims=True)", "exponentials.sum(axis=1, keepdims=True)"),
    "pruning": ("(outputs * gradients).sum", "outputs.sum"),
    "byte_pairs": ("range(len(ids) - 1)", "range(len(ids) - 2)"),
}
SLIPS = {
    "sampling": ('np.argsort(-logits, kind="stable")', "np.argsort(-logits)"),
    "padding": ("scores.max(axis=-1, keepdims=True)", "scores.max()"),
    "masked_lm": ("logits.max(axis=-1, keepdims=True)", "logits.max()"),
}


@pytest.mark.parametrize(("name", "change"), [*FALSE_NAMES.items(), *SLIPS.items()])
def test_an_unknown_mistake_is_refused_without_a_wrong_name(name: str, change: tuple[str, str]) -> None:
    exercise = find(name)
    assert change[0] in exercise.solution
    functions: dict[str, object] = {}
    exec(exercise.solution.replace(*change), functions)
    answer = {name: functions[name] for name in exercise.functions}
    marks = mark(LocalFunctions(answer), exercise.reference, exercise.cases(0), exercise.mistakes)  # type: ignore[arg-type]
    assert marks.wrong is not None
    assert marks.wrong.mistake is None, marks.wrong.mistake
