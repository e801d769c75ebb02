"""Accuracy, F1, calibration and the confusion matrix: by hand, by simulation, and for any label names."""

from __future__ import annotations

import json
import math
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.errors import GlassError
from glassformer.evaluation.classification import (
    ClassificationScores,
    classification_scores,
    confusion_matrix,
    macro_f1,
    macro_f1_of,
)
from glassformer.evaluation.resampling import bootstrap_interval


def certain(predicted: list[int], labels: int) -> np.ndarray:
    return np.eye(labels)[predicted]


def drawn(n: int, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, and the probabilities that they are sampled from: perfectly calibrated predictions."""
    numbers = np.random.default_rng(seed)
    chances = numbers.dirichlet(np.full(labels, 0.7), size=n)
    truth = (chances.cumsum(axis=1) > numbers.random((n, 1))).argmax(axis=1)
    return truth, chances


def test_by_hand() -> None:
    """3 cats (2 predicted as cat, 1 as dog), 1 dog (predicted as cat), no cow."""
    chances = [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]
    scores = classification_scores([0, 0, 0, 1], chances, ["cat", "dog", "cow"])
    assert scores.confusion.tolist() == [[2, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert (scores.accuracy, scores.right, scores.examples) == (0.5, 2, 4)
    cat, dog, cow = scores.classes
    assert (cat.precision, cat.recall, cat.f1, cat.support) == (2 / 3, 2 / 3, 2 / 3, 3)
    assert (dog.precision, dog.recall, dog.f1, dog.support) == (0.0, 0.0, 0.0, 1)
    assert (cow.precision, cow.recall, cow.f1, cow.support) == (0.0, 0.0, 0.0, 0)
    assert scores.macro_f1 == pytest.approx(1 / 3)  # the cow, which never occurs, does not count
    assert scores.log_loss == pytest.approx(-sum(math.log(p) for p in (0.7, 0.6, 0.2, 0.1)) / 4)
    brier = [0.09 + 0.04 + 0.01, 0.16 + 0.09 + 0.01, 0.64 + 0.25 + 0.09, 0.81 + 0.81 + 0.0]
    assert scores.brier == pytest.approx(sum(brier) / 4)
    assert scores.calibration_error == pytest.approx((0.3 + 0.4 + 0.5 + 0.9) / 4)


def test_precision_uses_predictions_and_recall_uses_true_labels() -> None:
    """Label a has precision 1/3 and recall 1; a predicted label that is never true counts in macro-F1 with 0."""
    scores = classification_scores([0, 1, 1, 1], certain([0, 0, 0, 2], 4), ["a", "b", "c", "d"])
    first, second, third, _ = scores.classes
    assert (first.precision, first.recall, first.f1) == (1 / 3, 1.0, 0.5)
    assert (second.precision, second.recall) == (0.0, 0.0)
    assert (third.precision, third.support) == (0.0, 0)
    assert scores.macro_f1 == pytest.approx(0.5 / 3)


def test_a_perfect_and_a_wholly_wrong_classifier() -> None:
    perfect = classification_scores([0, 1, 2, 1], certain([0, 1, 2, 1], 3), ["a", "b", "c"])
    assert (perfect.accuracy, perfect.macro_f1, perfect.calibration_error) == (1.0, 1.0, 0.0)
    assert (perfect.log_loss, perfect.brier) == (0.0, 0.0)
    wrong = classification_scores([0, 1, 2, 1], certain([1, 2, 0, 0], 3), ["a", "b", "c"])
    assert (wrong.accuracy, wrong.macro_f1, wrong.calibration_error) == (0.0, 0.0, 1.0)
    assert wrong.brier == 2.0
    assert 30 < wrong.log_loss < 40  # not infinite


def test_bins_include_their_upper_end_and_are_weighted() -> None:
    """With two labels, confidence is at least 0.5: 9/15 is the end of the ninth bin, 0.61 is in the tenth."""
    confidences = [9 / 15, 9 / 15, 0.61, 1.0]
    chances = [[p, 1 - p] for p in confidences]
    scores = classification_scores([0, 1, 0, 0], chances, ["a", "b"])
    assert [(row.count, row.accuracy) for row in scores.reliability] == [(2, 0.5), (1, 1.0), (1, 1.0)]
    assert [(row.low, row.high) for row in scores.reliability] == [(8 / 15, 9 / 15), (9 / 15, 10 / 15), (14 / 15, 1.0)]
    assert [row.confidence for row in scores.reliability] == pytest.approx([0.6, 0.61, 1.0])
    assert scores.calibration_error == pytest.approx((2 * 0.1 + 0.39 + 0) / 4)


def test_calibrated_probabilities_have_low_calibration_error_and_others_high() -> None:
    truth, chances = drawn(20_000, 4, seed=0)
    names = ["a", "b", "c", "d"]
    fair = classification_scores(truth, chances, names)
    assert fair.calibration_error < 0.015
    assert fair.accuracy == pytest.approx(chances.max(axis=1).mean(), abs=0.012)
    assert fair.log_loss == pytest.approx(-(chances * np.log(chances)).sum(axis=1).mean(), abs=0.02)
    assert fair.brier == pytest.approx(1 - (chances**2).sum(axis=1).mean(), abs=0.012)
    sharper = chances**3 / (chances**3).sum(axis=1, keepdims=True)
    sure = classification_scores(truth, sharper, names)
    assert sure.accuracy == fair.accuracy
    assert sure.calibration_error == pytest.approx(sharper.max(axis=1).mean() - sure.accuracy, abs=0.01)
    assert sure.calibration_error > 0.1
    assert sure.log_loss > fair.log_loss
    assert sure.brier > fair.brier
    assert sum(row.count for row in sure.reliability) == 20_000
    for row in fair.reliability:
        assert row.low < row.confidence <= row.high
        assert abs(row.confidence - row.accuracy) < 0.02 + 2 / math.sqrt(row.count)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.permutations(range(4)))
@settings(max_examples=60)
def test_the_order_of_examples_and_labels_does_not_matter(pairs: list[tuple[int, int]], renamed: list[int]) -> None:
    truth = [t for t, _ in pairs]
    predicted = [p for _, p in pairs]
    scores = classification_scores(truth, certain(predicted, 4), ["a", "b", "c", "d"])
    shuffled = random.Random(0).sample(pairs, len(pairs))
    again = classification_scores(
        [renamed[t] for t, _ in shuffled], certain([renamed[p] for _, p in shuffled], 4), ["a", "b", "c", "d"]
    )
    assert again.accuracy == scores.accuracy == sum(t == p for t, p in pairs) / len(pairs)
    assert again.macro_f1 == pytest.approx(scores.macro_f1)
    assert again.brier == pytest.approx(scores.brier)
    for t, p in pairs:
        assert scores.confusion[t, p] == pairs.count((t, p)) == again.confusion[renamed[t], renamed[p]]
    assert scores.confusion.sum() == len(pairs)


def test_macro_f1_of_resamples_and_its_interval() -> None:
    truth, chances = drawn(400, 3, seed=1)
    predicted = chances.argmax(axis=1)
    statistic = macro_f1_of(truth, predicted, 3)
    scores = classification_scores(truth, chances, ["a", "b", "c"])
    assert statistic(np.arange(400)) == scores.macro_f1
    some = np.array([3, 3, 7, 11, 200])
    assert statistic(some) == macro_f1(confusion_matrix(truth[some], predicted[some], 3))
    low, high = bootstrap_interval(statistic, 400, repeats=300)
    assert low < scores.macro_f1 < high
    assert 0.05 < high - low < 0.15


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
@settings(max_examples=40)
def test_macro_f1_from_counts_equals_that_of_the_matrix(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = np.array(pairs).T
    counted = macro_f1_of(truth, predicted, 6)(np.arange(len(pairs)))
    assert counted == pytest.approx(macro_f1(confusion_matrix(truth, predicted, 6)), abs=1e-12)


def test_thousands_of_labels_need_no_matrix_for_each_resample() -> None:
    """With a confusion matrix, each of these calls would use 800 MB."""
    numbers = np.random.default_rng(0).integers(10_000, size=(2, 50))
    statistic = macro_f1_of(numbers[0], numbers[1], 10_000)
    tracemalloc.start()
    for _ in range(3):
        statistic(np.arange(50))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5_000_000


def test_brier_needs_no_matrix_of_labels_by_labels() -> None:
    """A (1,000, 1,000) matrix of truths would use 8 MB, but the (5, 1,000) probabilities use 40 kB."""
    chances = np.random.default_rng(1).dirichlet(np.ones(1000), size=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "eye", lambda *_: pytest.fail("a matrix of labels by labels"))
        scores = classification_scores([1, 2, 3, 4, 5], chances, [str(number) for number in range(1000)])
    truth = np.zeros((5, 1000))
    truth[np.arange(5), np.arange(1, 6)] = 1
    assert scores.brier == pytest.approx(((chances - truth) ** 2).sum(axis=1).mean())


def test_json_lists_only_occurring_pairs_of_many_labels() -> None:
    names = [f"label {i}" for i in range(51)]
    facts = classification_scores([0, 0, 3], certain([0, 7, 3], 51), names).facts()
    assert facts["confusion"] == [
        {"true": "label 0", "predicted": "label 0", "count": 1},
        {"true": "label 0", "predicted": "label 7", "count": 1},
        {"true": "label 3", "predicted": "label 3", "count": 1},
    ]
    json.dumps(facts)
    assert classification_scores([0], certain([0], 50), names[:50]).facts()["confusion"][0][0] == 1


def table_of(names: list[str], n: int, seed: int = 2) -> tuple[ClassificationScores, list[str]]:
    truth, chances = drawn(n, len(names), seed)
    scores = classification_scores(truth, chances, names)
    return scores, scores.text().splitlines()


def test_the_table_is_aligned_for_any_label_names() -> None:
    names = ["খেলা", "a label that goes on and on " * 5, "two\nlines\tof it", "国际新闻", ""]
    scores, lines = table_of(names, 12_000)
    assert len(lines) == 2 + len(names)
    end = lines[1].index("label")
    for number, (line, row, name) in enumerate(zip(lines[2:], scores.confusion.tolist(), names, strict=True), start=1):
        assert len(line[:end].rstrip()) == end - 2
        measured = scores.classes[number - 1]
        shown = [cell.replace(",", "") for cell in line[:end].split()]
        assert shown[: 1 + len(names)] == [str(number), *map(str, row)]
        assert shown[1 + len(names) :] == [
            *(f"{value:.3f}" for value in (measured.precision, measured.recall, measured.f1)),
            str(measured.support),
        ]
        if len(name) <= 60:
            assert line[end:] == " ".join(name.split())
    assert max(map(len, lines)) < 140
    assert lines[3].endswith("…")
    assert len(lines[3][end:]) <= 60


def test_a_shortened_label_keeps_its_vowel_signs() -> None:
    _, lines = table_of(["কি" * 61, "খ"], 20)
    assert lines[2].endswith("কি…")


def test_zeros_are_dots_and_twenty_labels_still_make_a_matrix() -> None:
    twenty = classification_scores(list(range(20)), certain(list(range(20)), 20), [f"label {i}" for i in range(20)])
    lines = twenty.text().splitlines()
    assert len(lines) == 22
    assert lines[2].count(".") - 3 == 19  # three scores have decimal points


def test_for_many_labels_the_most_confused_pairs_are_listed() -> None:
    names = [f"label {i}" for i in range(21)]
    truth = [0] * 10 + [1] * 5 + [2] * 3
    predicted = [5] * 4 + [0] * 6 + [0] * 5 + [2, 2, 20]
    scores = classification_scores(truth, certain(predicted, 21), names)
    lines = scores.text().splitlines()
    assert [line.split(maxsplit=2) for line in lines[2:]] == [
        ["5", "5", "label 1 -> label 0"],
        ["4", "10", "label 0 -> label 5"],
        ["1", "3", "label 2 -> label 20"],
    ]
    assert scores.confusion[0, 0] == 6  # the report does not change the counts
    perfect = classification_scores([0], certain([0], 21), names)
    assert perfect.text() == "no two labels were confused"
    _, many = table_of([f"label {i}" for i in range(60)], 3000)
    assert len(many) == 2 + 20


def test_facts_are_json_serializable() -> None:
    truth, chances = drawn(50, 3, seed=3)
    scores = classification_scores(truth, chances, ["a", "খ", "c"])
    facts = json.loads(json.dumps(scores.facts(), allow_nan=False))
    assert facts["macro_f1"] == scores.macro_f1
    assert facts["confusion"] == scores.confusion.tolist()
    assert facts["classes"][1]["name"] == "খ"
    assert sum(row["count"] for row in facts["reliability"]) == facts["examples"] == 50


def test_one_label_and_single_precision_are_accepted() -> None:
    assert classification_scores([0, 0], [[1.0], [1.0]], ["only"]).macro_f1 == 1.0
    truth, chances = drawn(100, 3, seed=4)
    rounded = chances.astype(np.float16)
    half, same = (classification_scores(truth, p, ["a", "b", "c"]) for p in (rounded, rounded.astype(np.float64)))
    assert half.facts() == same.facts()
    assert half.log_loss == pytest.approx(classification_scores(truth, chances, ["a", "b", "c"]).log_loss, abs=1e-2)


def test_invalid_probabilities_are_refused() -> None:
    fine = [[0.5, 0.5]]
    names = ["a", "b"]
    for truth, chances, called, said in (
        ([], np.zeros((0, 2)), names, "no labelled examples"),
        ([0, 1], fine, names, "2 labels and 2 names"),
        ([0], fine, ["a"], "1 name were"),
        ([[0]], fine, names, "shape"),
        ([2], fine, names, "2 to 2"),
        ([-1], fine, names, "-1 to -1"),
        ([0.0], fine, names, "float64"),
        ([0, 0], [[0.5, 0.5], [2.0, -1.0]], names, "row 1"),
        ([0, 0], [[0.5, 0.5], [0.5, 0.4]], names, "row 1"),
        (["a", "b"], [[0.5, 0.5], [0.5, 0.5]], names, "not integers, but <U1"),
        ([0, 0], [[0.5, 0.5], [math.nan, 1.0]], names, "row 1"),
    ):
        with pytest.raises(GlassError, match=said):
            classification_scores(truth, chances, called)
