"""The text estimators: inputs, outputs, and properties that scikit-learn's own checks do not cover."""

# ruff: noqa: E402
from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from glassformer.app.cli.main import main
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer.interop.sklearn import (
    RefusedError,
    TransformerArrayClassifier,
    TransformerClassifier,
    TransformerLanguageModel,
    TransformerTranslator,
)
from glassformer.interop.sklearn.classifiers import labels_from_json, labels_to_json
from glassformer.interop.sklearn.inputs import as_texts

SMALL: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "steps": 50,
    "learning_rate": 2e-2,
    "dropout": 0.0,
    "device": "cpu",
    "threads": 1,
    "random_state": 0,
}
WORDS = {**SMALL, "tokenizer": "words"}
KEYS = ("river", "stone", "cloud")
TEXTS = [" ".join(["the"] * (number % 7) + [KEYS[number % 3]] + ["so"] * (number % 4)) for number in range(84)]
LABELS = ["zinc" if "river" in text else "iron" if "stone" in text else "moss" for text in TEXTS]  # sorted: otherwise
ESTIMATORS = (TransformerArrayClassifier, TransformerClassifier, TransformerLanguageModel, TransformerTranslator)


@pytest.fixture(autouse=True, scope="module")
def _memory_for_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the many small files of short fits in memory if the operating system supports it."""
    tmp_path_factory.getbasetemp()  # stays on the disk
    before = tempfile.tempdir
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as tempfile.tempdir:
        yield
    tempfile.tempdir = before


@pytest.fixture(scope="module")
def classifier() -> TransformerClassifier:
    return TransformerClassifier(**WORDS).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def writer() -> TransformerLanguageModel:
    return TransformerLanguageModel(**WORDS, context=8, tokens=6).fit(TEXTS)


@pytest.fixture(scope="module")
def translator() -> TransformerTranslator:
    return TransformerTranslator(**{**WORDS, "steps": 120, "learning_rate": 5e-3, "width": 32}, tokens=6, beams=2).fit(
        TEXTS, LABELS
    )


@pytest.fixture(scope="module")
def of_numbers() -> TransformerArrayClassifier:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    return TransformerArrayClassifier(**SMALL).fit(rows, np.where(rows[:, 1] > 0, "up", "down"))


# Inputs


@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        np.array,
        lambda texts: np.array(texts, dtype=object),
        lambda texts: pandas.Series(texts, index=range(500, 500 + len(texts))),
        lambda texts: pandas.Series(texts, dtype=object, index=list(reversed(range(len(texts))))),
    ],
)
def test_texts_are_accepted_in_any_container(classifier: TransformerClassifier, container: Any) -> None:
    np.testing.assert_array_equal(classifier.predict_proba(container(TEXTS)), classifier.predict_proba(TEXTS))
    assert as_texts(container(TEXTS)) == TEXTS
    assert all(type(text) is str for text in as_texts(container(TEXTS)))


@pytest.mark.parametrize("container", [np.array, pandas.Series])
def test_fit_takes_arrays_and_series(container: Any, classifier: TransformerClassifier) -> None:
    fitted = clone(classifier).fit(container(TEXTS), container(LABELS))
    np.testing.assert_array_equal(fitted.predict_proba(TEXTS), classifier.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("one text", "X is a single text, not a list of texts"),
        (b"bytes", "X is a single bytes object"),
        (np.array([["a", "b"]]), r"shape \(1, 2\)"),
        (pandas.DataFrame({"text": ["a", "b"]}), r"shape \(2, 1\)"),
        (np.array("a"), r"shape \(\)"),
        (["a", None], r"X\[1\] is missing"),
        (["a", float("nan")], r"X\[1\] is missing"),
        (pandas.Series(["a", pandas.NA]), r"X\[1\] is missing"),
        (["a", 3], r"X\[1\] is 3 \(type int\)"),
        (np.array([1.5, 2.5]), r"X\[0\] is .*1\.5.*float64"),
        (["a", b"b"], r"X\[1\] is bytes"),
        (np.array([b"a"]), r"X\[0\] is bytes"),
        ([["a", "list"]], r"X\[0\] is .*type list"),
        (["half \ud83d"], "lone surrogate"),
        ({"a", "b"}, "X has type set"),
        ({"a": 1}, "X has type dict"),
        ((text for text in "ab"), "X has type generator"),
        (None, "X has type NoneType"),
        (7, "X has type int"),
        ([], "X has 0 texts"),
    ],
)
def test_inputs_other_than_texts_are_refused(classifier: TransformerClassifier, given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        classifier.predict(given)
    assert isinstance(caught.value, GlassError)
    assert len(str(caught.value).splitlines()) == 2
    with pytest.raises(RefusedError, match=words):
        TransformerLanguageModel(**WORDS).fit(given)
    with pytest.raises(RefusedError, match=words.replace("X", "y")):
        TransformerTranslator(**WORDS).fit(["a"], given)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_texts_are_not_changed(texts: list[str]) -> None:
    assert as_texts(texts) == as_texts(np.array(texts, dtype=object)) == as_texts(pandas.Series(texts)) == texts


def test_labels_and_targets_must_match_the_number_of_texts() -> None:
    for kind in (TransformerClassifier, TransformerTranslator):
        with pytest.raises(RefusedError, match="X has 3 texts, but y has 2"):
            kind(**WORDS).fit(["a", "b", "c"], ["x", "y"])


@pytest.mark.parametrize(
    ("labels", "words"), [(["x"] * 4, "only 1 class, 'x'"), ([0.5, 1.5, 2.5, 0.5], "continuous"), (None, "y is None")]
)
def test_invalid_labels_are_refused(labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TransformerClassifier(**WORDS).fit(["a", "b", "c", "d"], labels)


@pytest.mark.thorough
def test_empty_texts_are_learnt_like_others() -> None:
    texts = ["", "word", "", "more words", " ", "word"] * 4
    labels = [0, 1, 0, 1, 0, 1] * 4
    model = TransformerClassifier(**WORDS, validation_fraction=0).fit(texts, labels)
    assert model.predict(["", "word", "  "]).tolist() == [0, 1, 0]
    assert TransformerLanguageModel(**WORDS, tokens=2).fit(["", "a", "a b"]).score([""]) < 0
    pairs = TransformerTranslator(**WORDS, tokens=2).fit(["", "a", "b", "c"], ["", "x", "", "y"])
    assert len(pairs.predict(["", "a"])) == 2


def test_truncated_texts_are_reported() -> None:
    texts = [f"{'very ' * 30}{key}" if key == "long" else key for key in ("long", "short") * 10]
    model = TransformerClassifier(**WORDS, context=8, validation_fraction=0)
    with pytest.warns(UserWarning, match="10 of 20 examples are longer than model.context = 8"):
        model.fit(texts, ["a", "b"] * 10)
    with pytest.warns(UserWarning, match="1 of 2 texts is too long for context = 8"):
        model.predict(texts[:2])
    with pytest.raises(RefusedError, match=r"longer than model\.context = 8"):
        model.set_params(settings={"data.too_long": "refuse"}).fit(texts, ["a", "b"] * 10)


# Outputs


def test_every_text_gets_its_own_label(classifier: TransformerClassifier) -> None:
    assert classifier.classes_.tolist() == ["iron", "moss", "zinc"]
    assert classifier.predict(TEXTS).tolist() == LABELS
    assert classifier.score(TEXTS, LABELS) == 1.0
    shares = classifier.predict_proba(TEXTS)
    assert shares.shape == (len(TEXTS), 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    for row, label in zip(shares, LABELS, strict=True):
        assert row[classifier.classes_.tolist().index(label)] > 0.5
    np.testing.assert_allclose(classifier.predict_log_proba(TEXTS), np.log(shares))


@settings(max_examples=15)
@given(st.permutations(range(len(TEXTS))), st.integers(1, len(TEXTS)))
def test_the_batch_has_no_effect(classifier: TransformerClassifier, order: list[int], size: int) -> None:
    whole = classifier.predict_proba(TEXTS)
    shuffled = [TEXTS[index] for index in order]
    parts = [classifier.predict_proba(shuffled[at : at + size]) for at in range(0, len(shuffled), size)]
    np.testing.assert_allclose(np.concatenate(parts), whole[order], atol=1e-6)


@pytest.mark.thorough
def test_translations_keep_their_order(translator: TransformerTranslator) -> None:
    whole = translator.predict(TEXTS)
    assert whole.dtype == object
    assert whole.tolist() == LABELS
    assert [translator.predict([text])[0] for text in TEXTS[:5]] == whole[:5].tolist()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kinds",
    [
        [10, -3, 7],
        [True, False],
        [2.0, 1.0],
        ["zwei", "eins", ""],
        np.array(["b", "a"], dtype=object),
        [np.uint8(3), 1],
    ],
    ids=str,
)
def test_labels_come_back_as_they_were(kinds: Any) -> None:
    labels = np.array([kinds[KEYS.index(text.split(" so")[0].split()[-1]) % len(kinds)] for text in TEXTS])
    labels = labels.astype(kinds.dtype) if isinstance(kinds, np.ndarray) else labels
    model = TransformerClassifier(**WORDS, validation_fraction=0).fit(TEXTS, labels)
    assert model.classes_.dtype == labels.dtype
    assert model.predict(TEXTS).dtype == labels.dtype
    np.testing.assert_array_equal(model.classes_, np.unique(labels))
    np.testing.assert_array_equal(model.predict(TEXTS), labels)


def test_the_language_models_score_is_its_mean_log_probability(writer: TransformerLanguageModel) -> None:
    """Recompute the score by token, with rows as in training: at most 8 visible tokens, each token predicted once."""
    model = writer.text_model_.model
    tokenizer = writer.text_model_.tokenizer
    end = writer.text_model_.tokenizer.end_id
    texts = ["the river", "", " ".join(["the"] * 12)]
    total = 0.0
    count = 0
    for text in texts:
        ids = [end, *tokenizer.encode(text), end]
        for start in range(0, len(ids) - 1, 8):
            row = torch.tensor([ids[start : start + 9]])
            with torch.no_grad():
                logs = model(row[:, :-1])[0].double().log_softmax(dim=-1)
            total += float(logs[torch.arange(row.shape[1] - 1), row[0, 1:]].sum())
            count += row.shape[1] - 1
    assert writer.score(texts) == pytest.approx(total / count, abs=1e-5)
    assert writer.perplexity(texts) == pytest.approx(np.exp(-total / count), rel=1e-4)
    assert writer.score(TEXTS) > writer.score(["so the the so cloud the", "river river stone the"])


def test_the_language_model_writes(writer: TransformerLanguageModel) -> None:
    prompts = ["the the", "the the the river so", ""] * 12
    written = writer.generate(prompts)
    assert written.shape == (36,)
    assert written.tolist() == writer.generate(np.array(prompts)).tolist() != writer.generate(prompts, 1).tolist()
    assert all(set(text.split()) <= {"the", "so", *KEYS} for text in written)
    assert writer.sample(3).shape == (3,)
    assert writer.sample(20, random_state=3).tolist() == writer.sample(20, random_state=3).tolist()
    assert len(set(writer.sample(20))) > 1
    with pytest.raises(RefusedError, match="n_samples = 0"):
        writer.sample(0)


def test_the_translators_score_is_its_mean_log_probability(translator: TransformerTranslator) -> None:
    model = translator.text_model_.model
    tokenizer = translator.text_model_.tokenizer
    end = translator.text_model_.tokenizer.end_id
    total = 0.0
    count = 0
    for text, answer in zip(TEXTS[:5], LABELS[:5], strict=True):
        source = torch.tensor([[*tokenizer.encode(text), end]])
        target = torch.tensor([[end, *tokenizer.encode(answer), end]])
        with torch.no_grad():
            logs = model(source, target[:, :-1])[0].double().log_softmax(dim=-1)
        total += float(logs[torch.arange(target.shape[1] - 1), target[0, 1:]].sum())
        count += target.shape[1] - 1
    assert translator.score(TEXTS[:5], LABELS[:5]) == pytest.approx(total / count, abs=1e-5)
    assert translator.score(TEXTS, LABELS) > translator.score(TEXTS, LABELS[1:] + LABELS[:1]) + 1


def test_labels_that_differ_from_those_of_the_model_are_refused(
    classifier: TransformerClassifier, tmp_path: Path
) -> None:
    classifier.save(tmp_path / "saved")
    file = tmp_path / "saved" / "estimator.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    facts["fitted"]["classes_"]["values"].reverse()
    file.write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(RefusedError, match="has the labels zinc, moss, iron, but its model has iron, moss, zinc"):
        TransformerClassifier.load(tmp_path / "saved")


def test_two_vocabularies() -> None:
    model = TransformerTranslator(**{**WORDS, "steps": 3}, joint=False, tokens=3).fit(TEXTS, LABELS)
    source = model.text_model_.source_tokenizer
    target = model.text_model_.tokenizer
    assert (source.vocab_size, target.vocab_size) == (2 + 9, 2 + 3)  # unknown and end; "the" and " the" are two
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(TEXTS[:3]).tolist() == model.predict(TEXTS[:3]).tolist()


# Effects of a fit


@pytest.mark.thorough
def test_a_fit_is_a_function_of_its_arguments(classifier: TransformerClassifier) -> None:
    before = classifier.predict_proba(TEXTS)
    again = clone(classifier).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(again.predict_proba(TEXTS), before)
    np.testing.assert_array_equal(again.fit(TEXTS, LABELS).predict_proba(TEXTS), before)
    by_object = clone(classifier).set_params(random_state=np.random.RandomState(0)).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(by_object.predict_proba(TEXTS), before)
    other = clone(classifier).set_params(random_state=1).fit(TEXTS, LABELS)
    assert not np.allclose(other.predict_proba(TEXTS), before)


def test_a_fit_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    state = torch.get_rng_state()
    numpys = np.random.get_state()[1].copy()
    threads = torch.get_num_threads()
    parameters = {**WORDS, "steps": 3, "threads": threads + 1, "settings": {"model.activation": "relu"}}
    model = TransformerClassifier(**parameters)
    model.fit(TEXTS, LABELS).predict(TEXTS)
    assert torch.get_num_threads() == threads
    pickle.dumps(model)
    TransformerLanguageModel(**{**WORDS, "steps": 3}).fit(TEXTS).score(TEXTS)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")] == []  # torch's own
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpys).all()
    assert torch.get_num_threads() == threads
    assert parameters.items() <= model.get_params().items()
    assert model.get_params()["settings"] is parameters["settings"]
    assert model.config_.model.activation == "relu"
    assert capfd.readouterr() == ("", "")
    model.set_params(verbose=True, threads=1).fit(TEXTS, LABELS)
    assert "step" in capfd.readouterr().err


def test_the_vocabulary_comes_only_from_the_training_texts() -> None:
    texts = [f"word{number}" for number in range(40)]
    for share, learnt in ((0.25, 30), (0, 40)):
        model = TransformerClassifier(**{**WORDS, "steps": 1}, validation_fraction=share)
        assert model.fit(texts, [0, 1] * 20).text_model_.tokenizer.vocab_size == learnt + 2


def test_without_validation_the_last_weights_are_used() -> None:
    model = TransformerClassifier(**{**WORDS, "steps": 7}, validation_fraction=0).fit(TEXTS, LABELS)
    assert (model.best_step_, model.n_steps_, model.validation_loss_) == (7, 7, None)
    with pytest.raises(RefusedError, match="needs held-out examples"):
        model.set_params(patience=2).fit(TEXTS, LABELS)


def test_patience_stops_early() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(2, size=60)
    texts = [str(number) for number in random.integers(10**6, size=60)]
    model = TransformerClassifier(**{**WORDS, "steps": 200, "tokenizer": "characters"}, patience=1).fit(texts, labels)
    assert model.best_step_ < model.n_steps_ < 200
    assert model.validation_loss_ > 0


def test_epochs_and_settings() -> None:
    base = {key: value for key, value in WORDS.items() if key != "steps"}
    held = round(0.25 * len(TEXTS))
    model = TransformerClassifier(**base, epochs=2, validation_fraction=0.25, batch=7).fit(TEXTS, LABELS)
    assert abs(model.n_steps_ - 2 * (len(TEXTS) - held) / 7) <= 2
    model = TransformerClassifier(**base, settings={"train.steps": 2, "model.layers": np.int64(3)}).fit(TEXTS, LABELS)
    assert (model.n_steps_, model.config_.model.layers, model.layers) == (2, 3, 1)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"layers": 0}, "model.layers = 0"),
        ({"heads": 3}, "heads = 3 does not divide width = 16"),
        ({"tokenizer": "wrods"}, "Did you mean words"),
        ({"device": "abacus"}, "train.device = 'abacus'"),
        ({"epochs": 0, "steps": None}, "epochs = 0"),
        ({"validation_fraction": 1.5}, "data.validation_fraction = 1.5"),
        ({"settings": {"model.actviation": "relu"}}, "Did you mean activation"),
        ({"settings": {"layers": 2}}, "'layers'"),
        ({"settings": {"data.source": "x"}}, "data.source does not apply"),
        ({"settings": {"train.task": "lm"}}, "train.task does not apply"),
    ],
)
def test_parameters_are_checked_by_fit(parameters: dict[str, Any], words: str) -> None:
    for kind in (TransformerClassifier, TransformerTranslator):
        model = kind(**{**WORDS, **parameters})
        with pytest.raises(ValueError, match=words):
            model.fit(TEXTS, LABELS)


def test_too_few_texts_to_hold_one_out_are_refused() -> None:
    with pytest.raises(RefusedError, match="validation_fraction = 0"):
        TransformerLanguageModel(**WORDS).fit(["one long text"])
    one = TransformerLanguageModel(**{**WORDS, "steps": 3}, validation_fraction=0).fit(["one long text"])
    assert one.score(["one"]) < 0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"bins": 1}, "bins = 1"),
        ({"bins": 2.5}, "bins = 2.5"),
        ({"settings": {"tokenizer.kind": "bpe"}}, "tokenizer.kind follows from"),
    ],
)
def test_parameters_of_the_numeric_estimator_are_checked(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        TransformerArrayClassifier(**SMALL, **parameters).fit(np.eye(4), [0, 1, 0, 1])


def test_bins_contain_equally_many_rows(of_numbers: TransformerArrayClassifier) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    assert [len(edges) for edges in of_numbers.edges_] == [15, 15, 15]
    for column, edges in zip(rows.T, of_numbers.edges_, strict=True):
        assert set(np.bincount(np.searchsorted(edges, column, side="right"))) <= {3, 4}
    assert of_numbers.score(rows, np.where(rows[:, 1] > 0, "up", "down")) > 0.9
    first = np.array([[edges[0] for edges in of_numbers.edges_]])  # a bin begins with its edge
    assert of_numbers._texts(first) == of_numbers._texts(first + 1e-9) == [" c0b1 c1b1 c2b1"]
    far = of_numbers.predict([[0, 1e9, 0], [0, -1e9, 0]])
    assert far.tolist() == ["up", "down"]


def test_the_batch_has_no_effect_for_numbers(of_numbers: TransformerArrayClassifier) -> None:
    rows = np.random.default_rng(1).normal(size=(70, 3))
    singly = np.concatenate([of_numbers.predict_proba(row[None]) for row in rows])
    for again in (of_numbers, pickle.loads(pickle.dumps(of_numbers))):
        np.testing.assert_allclose(again.predict_proba(rows), singly, rtol=1e-12)


def test_a_column_with_few_values_keeps_them_apart() -> None:
    rows = np.array([[0, 5.0], [1, 5.0]] * 20)
    model = TransformerArrayClassifier(**SMALL, validation_fraction=0).fit(rows, [0, 1] * 20)
    assert model.predict(rows).tolist() == [0, 1] * 20


# Saving


def fitted_all(request: pytest.FixtureRequest) -> Iterator[tuple[Any, list[Any]]]:
    names = {"classifier": TEXTS[:9], "translator": TEXTS[:9], "writer": TEXTS[:9], "of_numbers": np.eye(3)}
    for name, X in names.items():
        yield request.getfixturevalue(name), list(X)


def answers(estimator: Any, X: list[Any]) -> list[Any]:
    """Return all results that need no labels."""
    if isinstance(estimator, TransformerLanguageModel):
        return [estimator.score(X), *estimator.generate(X)]
    shares = estimator.predict_proba(X).tolist() if hasattr(estimator, "predict_proba") else []
    return [*estimator.predict(X).tolist(), *shares]


def test_pickles_and_copies(request: pytest.FixtureRequest) -> None:
    for estimator, X in fitted_all(request):
        for again in (pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
            assert answers(again, X) == answers(estimator, X)
            assert again.get_params() == estimator.get_params()
            assert vars(again).keys() == vars(estimator).keys()
        packed = estimator.__getstate__()["text_model_"]
        assert all(isinstance(data, bytes) for data in packed.values())
        assert any(name.endswith("model.safetensors") for name in packed)


def test_save_and_load(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for estimator, X in fitted_all(request):
        folder = tmp_path / type(estimator).__name__
        estimator.save(folder)
        assert {path.suffix for path in folder.rglob("*") if path.is_file()} <= {".toml", ".json", ".safetensors", ""}
        again = type(estimator).load(folder)
        assert answers(again, X) == answers(estimator, X)
        assert again.get_params() == estimator.get_params()
        assert vars(again).keys() == vars(estimator).keys()
        with pytest.raises(GlassError, match="already contains a run"):
            estimator.save(folder)
        other = next(kind for kind in ESTIMATORS if kind is not type(estimator))
        with pytest.raises(RefusedError, match=f"contains a {type(estimator).__name__}"):
            other.load(folder)


def test_one_of_two_saves_to_a_folder_succeeds_and_the_other_is_refused(
    classifier: TransformerClassifier, tmp_path: Path
) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        together = threading.Barrier(2)

        def save(folder: Path = folder, together: threading.Barrier = together) -> str:
            together.wait()
            try:
                classifier.save(folder)
            except GlassError as error:
                return error.problem
            return ""

        with ThreadPoolExecutor(2) as threads:
            problems = sorted(each.result() for each in [threads.submit(save) for _ in range(2)])
        assert problems[0] == ""
        assert problems[1] in (f"{folder} already contains a run", f"another glass command is writing {folder}")
        assert TransformerClassifier.load(folder).predict(TEXTS[:1]) == classifier.predict(TEXTS[:1])


def test_unserializable_settings_cannot_be_saved(classifier: TransformerClassifier, tmp_path: Path) -> None:
    odd = copy.deepcopy(classifier).set_params(settings={"train.steps": object()})
    with pytest.raises(RefusedError, match=r"settings = <object.*cannot be saved"):
        odd.save(tmp_path / "odd")
    assert not (tmp_path / "odd").exists()
    odd.set_params(settings={"train.steps": np.int64(3)}, random_state=np.random.RandomState(0)).save(tmp_path / "odd")
    again = TransformerClassifier.load(tmp_path / "odd")
    assert (again.settings, again.random_state) == ({"train.steps": 3}, None)


@pytest.mark.parametrize("kind", ["object", "<U5", "<i1", "<f4", "bool"])
def test_saved_labels_keep_their_type(kind: str) -> None:
    labels = np.array(["a", "bb"] if kind in ("object", "<U5") else [0, 1], dtype=kind)
    again = labels_from_json(json.loads(json.dumps(labels_to_json(labels))))
    assert again.dtype == labels.dtype
    assert again.tolist() == labels.tolist()
    with pytest.raises(RefusedError, match="labels of type date"):
        labels_to_json(np.array(["2026-01-01"], dtype="datetime64[D]"))


def test_a_saved_classifier_is_a_run(
    classifier: TransformerClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier.save(tmp_path / "saved")
    assert main(["classify", str(tmp_path / "saved"), *TEXTS[:3]]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == LABELS[:3]


def test_a_saved_estimator_without_its_text_is_not_resumed(
    classifier: TransformerClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "saved"
    classifier.save(folder)
    for words in (["train", "--resume", "--out", str(folder), "--steps", "70"], ["evaluate", str(folder)]):
        assert main(words) == 2
        problem, remedy = capsys.readouterr().err.splitlines()[-2:]
        assert problem == f"{folder} was saved by an estimator without its training text"
        assert remedy.endswith("Such a run cannot be resumed or pruned.")


def test_saved_language_models_and_translators_are_runs(
    writer: TransformerLanguageModel,
    translator: TransformerTranslator,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    writer.save(tmp_path / "writer")
    translator.save(tmp_path / "translator")
    assert main(["generate", str(tmp_path / "writer"), "the river"]) == 0
    assert main(["generate", str(tmp_path / "translator"), TEXTS[0]]) == 0
    assert LABELS[0] in capsys.readouterr().out


def test_damaged_folders_are_refused(classifier: TransformerClassifier, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="contains no saved estimator"):
        TransformerClassifier.load(tmp_path)
    classifier.save(tmp_path / "saved")
    weights = next((tmp_path / "saved").rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(GlassError, match="truncated"):
        TransformerClassifier.load(tmp_path / "saved")
    (tmp_path / "saved" / "estimator.json").write_text("{", encoding="utf-8")
    with pytest.raises(RefusedError, match="damaged"):
        TransformerClassifier.load(tmp_path / "saved")


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_nothing_works_before_fit(kind: Any, tmp_path: Path) -> None:
    for name in ("predict", "predict_proba", "predict_log_proba", "score", "perplexity", "generate", "sample", "save"):
        if hasattr(kind, name):
            argument = [1] if name == "sample" else [tmp_path / "x"] if name == "save" else [["a"]]
            more = [["b"]] if name == "score" and kind is not TransformerLanguageModel else []
            with pytest.raises(NotFittedError):
                getattr(kind(), name)(*argument, *more)


# Inside scikit-learn


def test_pipelines() -> None:
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, TransformerClassifier(**WORDS)).fit(TEXTS, LABELS)
    assert pipeline.predict([text.upper() for text in TEXTS]).tolist() == LABELS
    assert pipeline.score(np.array(TEXTS), LABELS) == 1.0


@pytest.mark.thorough
def test_cross_validation() -> None:
    assert (cross_val_score(TransformerClassifier(**WORDS), pandas.Series(TEXTS), LABELS, cv=2) > 0.8).all()
    quick = {**WORDS, "steps": 10}
    assert (cross_val_score(TransformerLanguageModel(**quick), TEXTS, cv=2) < 0).all()
    assert (cross_val_score(TransformerTranslator(**quick), TEXTS, LABELS, cv=2) < 0).all()


@pytest.mark.thorough
def test_grid_search() -> None:
    search = GridSearchCV(TransformerClassifier(**WORDS), {"layers": np.array([1, 2])}, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_["layers"] in (1, 2)
    assert search.best_estimator_.config_.model.layers == search.best_params_["layers"]
    assert search.predict(TEXTS[:5]).tolist() == LABELS[:5]
    assert pickle.loads(pickle.dumps(search)).predict(TEXTS[:5]).tolist() == LABELS[:5]


def test_text_parameters_show_in_the_representation() -> None:
    assert (
        repr(TransformerClassifier(layers=3, tokenizer="words")) == "TransformerClassifier(layers=3, tokenizer='words')"
    )


@pytest.mark.thorough
def test_imports_are_lazy() -> None:
    code = (
        "import sys, glassformer, glassformer.interop\n"
        "assert 'sklearn' not in sys.modules\n"
        "import glassformer.interop.sklearn\n"
        "assert 'torch' not in sys.modules\n"
        "for name in [name for name in sys.modules if name.startswith('glassformer.interop.')]: del sys.modules[name]\n"
        "sys.modules['sklearn'] = None\n"
        "import glassformer.interop\n"
        "try: import glassformer.interop.sklearn\n"
        "except ImportError as error: print(error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == [
        "these estimators need the package scikit-learn",
        install_command("sklearn"),
    ]
