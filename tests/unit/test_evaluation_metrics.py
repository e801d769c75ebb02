"""Metrics with intervals and paired tests, and the nearest-neighbour baseline."""

from __future__ import annotations

import numpy as np
import pytest

from glassformer.base.config import TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.evaluation import even_sample, label_report, pair_report
from glassformer.evaluation.metrics import facts_of, mean, paired_tests, proportion, whole_set
from glassformer.evaluation.nearest_neighbour import Nearest
from glassformer.evaluation.resampling import bootstrap_interval, mean_of, wilson
from glassformer.text.encode import RecordWriter
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RECORD_KINDS
from glassformer.text.tokenizers import train_tokenizer


def test_a_proportion_has_wilsons_interval_and_other_means_a_bootstrap() -> None:
    right = [1, 0, 1, 1, 1, 1, 1, 1]
    assert proportion("a", "A", right).interval == wilson(7, 8)
    assert proportion("a", "A", [1] * 8).interval[0] < 1, "all right is not certainly right"
    lengths = [0.5, 1.5, 2.5, 0.25]
    assert mean("b", "B", lengths).interval == bootstrap_interval(mean_of(lengths), 4)
    extreme = mean("b", "B", right)
    assert extreme.interval == bootstrap_interval(mean_of(right), 8), "a score that happens to be 0 or 1 is no share"
    assert mean("b", "B", lengths).value == pytest.approx(1.1875)


def test_means_are_compared_by_permutation_and_whole_sets_by_bootstrap() -> None:
    spread = whole_set("s", "S", lambda chosen: float(np.ptp(chosen)), 5)
    tests = paired_tests(
        [proportion("a", "A", [1, 1, 0, 1, 1]), spread], [proportion("a", "A", [0, 1, 0, 0, 1]), spread], 5
    )
    assert tests["a"].difference == pytest.approx(0.4)
    assert tests["a"].method == "paired permutation"
    assert tests["s"].difference == 0
    assert tests["s"].method == "paired bootstrap"


def test_facts_have_value_interval_and_signature() -> None:
    facts = facts_of([proportion("a", "A", [1, 0], note="how")])
    assert facts["a"] == 0.5
    assert facts["a_signature"] == "how"
    assert facts["a_ci95"] == list(wilson(1, 2))


def test_without_sacrebleu_other_metrics_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {metric.key: metric.value for metric in pair_report.pair_metrics(["a b c d e"], ["a b c d f"])}
    assert set(everything) == {"bleu", "bleu_lowercase", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"}
    monkeypatch.setattr(pair_report, "can_score", lambda: False)
    without = {metric.key: metric.value for metric in pair_report.pair_metrics(["a b c d e"], ["a b c d f"])}
    assert without == {key: everything[key] for key in ("rouge1", "rouge2", "rougeL", "exact_match")}


def test_the_nearest_text_shares_the_rare_words() -> None:
    known = [
        ("the dog sleeps in the house", "1"),
        ("the cat sings in the house", "2"),
        ("the cat sings a very long song about the dog in the house of the king", "3"),
        ("আমি বাংলায় গান গাই", "4"),
    ]
    nearest = Nearest(known)
    assert [nearest.answer(text) for text, _ in known] == ["1", "2", "3", "4"]
    assert nearest.answer("a cat sings") == "2", "a short text is nearer than a long one that has its words too"
    assert nearest.answer("the king") == "3"
    assert nearest.answer("গান") == "4"
    assert nearest.answer("xyz") == "1", "nothing is known: the first one"


def test_the_nearest_text_is_found_by_a_frequent_word() -> None:
    nearest = Nearest([(f"word {number}", str(number)) for number in range(500)])
    assert nearest.answer("word unheard") in {str(number) for number in range(500)}
    assert nearest.answer("word 77") == "77"


@pytest.fixture(scope="module")
def sorted_store(tmp_path_factory: pytest.TempPathFactory) -> RecordStore:
    """Return a store of ten labelled texts, sorted by label as files often are."""
    prefix = tmp_path_factory.mktemp("store") / "train"
    tokenizer = train_tokenizer(TokenizerConfig(kind="bytes"), ["word"])
    kind = RECORD_KINDS["classify"]
    writer = RecordWriter(kind, prefix, {"text": tokenizer}, {"a": 0, "b": 1})
    for number in range(10):
        writer.add((f"word {number}",), ("a" if number < 6 else "b",))
    writer.close()
    return RecordStore.open(kind, prefix)


def test_baselines_use_texts_from_the_whole_store(sorted_store: RecordStore) -> None:
    answers = [label for _, label in even_sample.evenly_spaced_texts(sorted_store, 5)]
    assert answers == ["a", "a", "a", "b", "b"]
    assert list(even_sample.evenly_spaced_texts(sorted_store)) == list(sorted_store.texts())
    last = np.arange(10) >= 7
    assert [text for text, _ in even_sample.evenly_spaced_texts(sorted_store, None, last)] == [
        "word 7",
        "word 8",
        "word 9",
    ]
    assert [text for text, _ in even_sample.evenly_spaced_texts(sorted_store, 1, last)] == ["word 7"]


Row = tuple[str, float, float | None, str]


def baselines_of(monkeypatch: pytest.MonkeyPatch, store: RecordStore, known: list[tuple[str, str]]) -> list[Row]:
    """Return the baselines of a classifier trained on `known`, measured on its first text."""
    monkeypatch.setattr(label_report, "evenly_spaced_texts", lambda store: iter(known))
    names = sorted({label for _, label in known})
    return label_report._baselines(store, [known[0][0]], [known[0][1]], names)


def test_texts_without_words_leave_out_the_baseline_that_counts_words(
    sorted_store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    rows = baselines_of(monkeypatch, sorted_store, [("🙂", "good"), ("!!", "bad"), ("🙁", "bad")])
    assert [name for name, *_ in rows] == ["majority"]
    assert "no words" in rows[0][3]
    rows = baselines_of(monkeypatch, sorted_store, [("🙂 yes", "good"), ("!! no", "bad")])
    assert [name for name, *_ in rows] == ["majority", label_report.LINEAR]


def test_many_and_long_labels_make_a_short_note_and_no_long_wait(
    sorted_store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    known = [("a word", f"{number} {'x' * 500}") for number in range(201)]
    rows = baselines_of(monkeypatch, sorted_store, known)
    assert [name for name, *_ in rows] == ["majority"]
    assert "201 labels" in rows[0][3]
    assert len(rows[0][3]) < 200


def test_runs_with_other_labels_are_not_compared() -> None:
    label_report._same_labels(["a", "b"], ["b", "a"])
    for ours, theirs, said in (
        (["a", "b", "c"], ["a"], "only this run has b, c"),
        (["a"], ["a", "long" * 100], "only the other run has longlong"),
    ):
        with pytest.raises(GlassError, match=said) as refusal:
            label_report._same_labels(ours, theirs)
        assert len(refusal.value.problem) < 200
