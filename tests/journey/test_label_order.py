"""A classifier gives the same results by name, whatever the order of its labels: twins differ only in this order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.app.share.loading import load_shared
from glassformer.app.share.share import ShareRequest, share_run
from glassformer.interop.sklearn.saving import write_run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import TextClassifier
from tests.journey.api_server import serving
from tests.journey.commands import here
from tests.parity.written_runs import LABELS, make_run

TEXTS = ["the old dog", "it's 7", "sleeps near the river; the old dog sleeps near it", "আমি বাংলায়", "!", "Größe"]
NUMBERS = ("10", "2", "1")
"""Labels that are numbers, none of which is the index of the label."""


def classifier(folder: Path) -> TextClassifier:
    """Return the model of a run that classifies."""
    found = OpenedRun.load(folder, device="cpu").text_model
    assert isinstance(found, TextClassifier)
    return found


def twin(folder: Path, out: Path, order: list[int], names: tuple[str, ...] = LABELS) -> Path:
    """Write a run with the labels of another run in another order, and the rows of its head in the same order."""
    run = classifier(folder)
    run.labels = tuple(names[index] for index in order)
    with torch.no_grad():
        for name, value in run.model.named_parameters():
            if name.startswith("head."):
                value.copy_(value[order].clone())
    write_run(out, run, 1)
    return out


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make twins, twins whose labels are numbers, and a table of texts."""
    folder = tmp_path_factory.mktemp("labels")
    made = make_run(folder / "made", "classify", family="encoder", context=60)
    twin(made, folder / "one", [0, 1, 2])
    twin(made, folder / "two", [2, 0, 1])
    twin(made, folder / "numbers", [0, 1, 2], NUMBERS)
    drawn = random.Random(0)
    rows = [(f"{drawn.choice(TEXTS)} {number}", drawn.choice(sorted(LABELS, reverse=True))) for number in range(40)]
    table = "".join(f"{text}\t{label}\n" for text, label in rows)
    (folder / "texts.tsv").write_text(f"text\tlabel\n{table}", encoding="utf-8")
    return folder


def figures(home: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON of a command."""
    done = here(*arguments, "--json", folder=home)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_evaluations_are_equal(home: Path) -> None:
    one, two = (figures(home, "evaluate", name, "texts.tsv") for name in ("one", "two"))
    for name in ("loss", "accuracy", "macro_f1", "calibration_error", "log_loss", "brier"):
        assert one[name] == pytest.approx(two[name], abs=1e-6), name
    by_name = [{each["name"]: each for each in found["classes"]} for found in (one, two)]
    assert by_name[0] == by_name[1]
    model = classifier(home / "one")
    lines = [line.split("\t") for line in (home / "texts.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    right = [each.label == label for each, (_, label) in zip(model.classify([t for t, _ in lines]), lines, strict=True)]
    assert one["accuracy"] == pytest.approx(sum(right) / len(right))
    assert 0 < sum(right) < len(right)
    against = figures(home, "evaluate", "one", "texts.tsv", "--against", "two")["against"]
    assert all(abs(each["difference"]) < 1e-12 for each in against.values())


def test_shared_files_and_python_give_the_probabilities_by_name(home: Path) -> None:
    expected = classifier(home / "made").classify(TEXTS)
    for name in ("one", "two"):
        model = gf.load(home / name, device="cpu")
        report = share_run(ShareRequest(home / name, home / f"{name}.html", bits=32, examples=TEXTS[:1]))
        shared = load_shared(report.out)
        assert isinstance(shared, TextClassifier)
        for found, text in zip(expected, TEXTS, strict=True):
            for other in (model.classify(text), shared.classify([text])[0]):
                assert other.probabilities == pytest.approx(found.probabilities, abs=1e-6)
            for label in LABELS:
                assert model.loss(text, label) == pytest.approx(gf.load(home / "made").loss(text, label), abs=1e-5)


def test_two_runs_with_another_order_are_compared_by_name(home: Path) -> None:
    with serving([home / "one", home / "two"]) as served:
        body = {"text": TEXTS[0], "other": "two"}
        found = served.http.post("/api/runs/one/compare", json=body).json()
        assert {bar["name"] for bar in found["bars"]} == set(LABELS)
        for bar in found["bars"]:
            assert bar["one"] == pytest.approx(bar["other"], abs=1e-6)
        labels = served.http.post("/api/runs/two/write", json={"text": TEXTS[0]}).json()["labels"]
        by_name = {each["name"]: each["probability"] for each in labels}
        assert by_name == pytest.approx({bar["name"]: bar["one"] for bar in found["bars"]}, abs=1e-6)


def test_a_label_that_is_a_number_is_named_not_counted(home: Path) -> None:
    model = gf.load(home / "numbers", device="cpu")
    logits = model.logits(TEXTS[0])
    for index, name in enumerate(NUMBERS):
        assert model.loss(TEXTS[0], name) == pytest.approx(-float(logits.log_softmax(0)[index]), abs=1e-5)
        found = figures(home, "receipt", "numbers", TEXTS[0], "--token", name)
        assert found["logit"] == pytest.approx(float(logits[index]), abs=1e-4)
