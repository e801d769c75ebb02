"""The checks of exercises: every shipped answer passes, and every known mistake is rejected by its name."""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ElementTree

import pytest

from glassformer.base.wording import LEVELS
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
    assert len({mistake.name for mistake, _ in mistakes}) == len(mistakes) >= 3
    for seed in SEEDS:
        for mistake, functions in mistakes:
            marks = mark(LocalFunctions(functions), exercise.reference, exercise.cases(seed), exercise.mistakes)
            assert marks.wrong is not None, f"{mistake.name} passes"
            assert marks.wrong.mistake is not None, f"{mistake.name} is refused without its name: {marks.wrong}"
            assert marks.wrong.mistake.name == mistake.name


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
