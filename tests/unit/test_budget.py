"""Arithmetic of time limits: allowed evaluations, the end of training, and the schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.training.budget import EVALUATIONS, FINAL, LEAST_ROWS, ONE_EVALUATION, REST_SECONDS, REST_SHARE, Budget


def budget(**changes: float) -> Budget:
    """Return a budget of ten minutes: rows of 10 ms, a sample of 2 s, a checkpoint of 1 s, a step of 0.5 s."""
    facts = {"seconds": 600.0, "wanted_rows": 500, "all_rows": 2000, "row": 0.01, "sample": 2.0, "save": 1.0}
    return Budget(**{**facts, "step": 0.5, **changes})  # type: ignore[arg-type]


def test_all_rows_are_evaluated_if_they_fit() -> None:
    assert budget(wanted_rows=300).rows() == 300  # 3 of at most 3 s
    assert budget().final_rows() == 2000  # 20 of at most 60 s
    assert budget(row=0.0).final_rows() == 2000  # not measured


def test_only_rows_that_fit_are_evaluated() -> None:
    slow = budget(row=0.1)
    assert slow.rows() == 30  # 3 s, a two-hundredth of 600 s
    assert slow.final_rows() == 600  # a tenth of 600 s
    assert budget(row=1000.0).final_rows() == budget(row=1000.0).rows() == LEAST_ROWS
    assert budget(row=1000.0, all_rows=1, wanted_rows=1).final_rows() == 1


def test_the_final_evaluation_uses_the_remaining_time() -> None:
    slow = budget(row=0.1)
    assert slow.final_rows(600 - 1 - slow.reserved_seconds - 45.05) == 450
    assert slow.final_rows(599.0) == 300
    assert slow.final_rows(100.0) == 600


def test_training_ends_in_time_for_all_remaining_work() -> None:
    plan = budget()
    rest = REST_SECONDS + REST_SHARE * 600
    follows = (500 * 0.01 + 2.0) + 1.0 + (1.0 + 2000 * 0.01 + rest)  # evaluation, checkpoint, final evaluation
    assert plan.training_ends(500) == pytest.approx(600 - follows)
    assert not plan.must_end(600 - follows - 0.51, 500)
    assert plan.must_end(600 - follows - 0.49, 500)  # the next step would end too late


def test_the_schedule_runs_from_the_first_step_to_the_end_of_training() -> None:
    plan = budget()
    end = plan.training_ends(500)
    assert plan.fraction_done(30.0, 30.0, 500) == 0.0
    assert plan.fraction_done((30 + end) / 2, 30.0, 500) == pytest.approx(0.5)
    assert plan.fraction_done(end, 30.0, 500) == plan.fraction_done(2 * end, 30.0, 500) == 1.0
    assert (
        plan.fraction_done(700.0, 700.0, 500) == 0.0
    )  # the only step of a run whose minutes are over has its full rate
    assert plan.fraction_done(701.0, 700.0, 500) == 1.0


def test_an_evaluation_waits_until_its_time_is_available() -> None:
    plan = budget(sample=5.0)  # 10 s each, of 60 in the whole run, 10 of them kept for the last one
    assert not plan.allows_evaluation(100.0, 0.0, 500, first=True)
    assert plan.allows_evaluation(111.0, 0.0, 500, first=True)
    assert not plan.allows_evaluation(150.0, 10.0, 500, first=False)
    assert plan.allows_evaluation(231.0, 10.0, 500, first=False)
    assert not plan.allows_evaluation(500.0, 45.0, 500, first=False)  # the last one has the rest


def test_one_expensive_evaluation_is_made_in_the_second_half() -> None:
    plan = budget(sample=24.0)  # 29 s each: two of them nearly fill the share
    assert not plan.allows_evaluation(100.0, 0.0, 500, first=True)
    assert plan.allows_evaluation(300.0, 0.0, 500, first=True)
    assert not plan.allows_evaluation(300.0, 0.0, 500, first=False)
    assert not budget(sample=100.0).allows_evaluation(300.0, 0.0, 500, first=True)


def test_the_suggested_minutes_are_a_sufficient_round_number() -> None:
    plan = budget(seconds=0.6)
    least = plan.least_minutes(3.0, 500)
    assert 60 * least >= 2 * (3.0 + 0.5 + plan.after_training(500))
    assert least == float(f"{least:.2g}")


@given(
    st.floats(1, 1e5),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.floats(0, 1e3),
    st.floats(0, 1e3),
    st.floats(0, 1e3),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
    st.booleans(),
)
def test_time_shares_are_never_exceeded(
    seconds: float,
    wanted: int,
    every: int,
    row: float,
    sample: float,
    save: float,
    now: float,
    spent: float,
    first: bool,
) -> None:
    plan = Budget(seconds, min(wanted, every), every, row, sample, save)
    rows = plan.rows()
    final = plan.final_rows()
    assert 1 <= rows <= min(wanted, every)
    assert 1 <= final <= every
    assert rows * row <= ONE_EVALUATION * seconds * (1 + 1e-9) or rows <= LEAST_ROWS
    assert final * row <= FINAL * seconds * (1 + 1e-9) or final <= LEAST_ROWS
    if plan.allows_evaluation(now, spent, rows, first):  # and the last one still fits
        assert spent + 2 * plan.evaluation(rows) <= EVALUATIONS * seconds * (1 + 1e-9)
    assert 0 <= plan.fraction_done(now, spent, rows) <= 1
