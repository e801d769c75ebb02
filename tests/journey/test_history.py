"""`glass heads --history` through the real command line: text, HTML page, animations, and errors."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.base.locks import folder_lock
from glassformer.inspection.replay import read_history
from glassformer.runs.folder import Run
from tests.journey.commands import here
from tests.journey.task_runs import TINY, refused, train

RUN = "runs/filmed"


@pytest.fixture(scope="module")
def home(task_home: Path) -> Path:
    """Return the folder of all tasks' runs, with two more that have snapshots: a translator and a decoder.

    The decoder is trained on the corpus `repeats`.
    """
    for name, out in (("translate", "runs/filmed-pairs"),):
        done = here(*train(name, "--train.snapshots=3", "--steps=4", out=out), folder=task_home)
        assert done.returncode == 0, done.stderr
    words = ["train", "repeats", *TINY[:-1], "--data.size=300", "--steps=12", "--train.snapshots=6", "--out", RUN]
    done = here(*words, "--model.layers=2", folder=task_home)
    assert done.returncode == 0, done.stderr
    return task_home


def told(folder: Path, *words: str, run: str = RUN) -> str:
    done = here("heads", run, "--history", *words, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def page_data(path: Path) -> dict[str, Any]:
    """Return the data that a page contains; the page must not load anything else."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"https?:|src=|@import|fetch\(", text)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)
    assert found
    facts: dict[str, Any] = json.loads(found[1])
    return facts


@pytest.mark.thorough
def test_curves_and_first_appearances_of_roles_are_reported(home: Path) -> None:
    facts = json.loads(told(home, "--json"))
    assert facts["steps"] == [0, 1, 2, 4, 7, 12]
    history = read_history(Run(home / RUN))
    for head, roles in facts["scores"].items():
        for role, curve in roles.items():
            assert curve == [float(value) for value in history.curve(head, role)]
    assert {"previous", "self", "first", "positional"} <= set(facts["scores"]["dec.1.self.1"])
    shown = told(home, "--role", "first").splitlines()
    rows = [line.split() for line in shown[-6:]]
    assert [int(row[0]) for row in rows] == facts["steps"]
    assert [row[1] for row in rows] == [f"{loss:.3f}" for loss in facts["losses"]]
    one = json.loads(told(home, "--json", "--role", "first", "--head", "dec.1.self.0"))
    assert one["scores"] == {"dec.1.self.0": {"first": facts["scores"]["dec.1.self.0"]["first"]}}
    births = [birth for birth in facts["births"] if birth["role"] == "first"]
    assert json.loads(told(home, "--json", "--role", "first"))["births"] == births


def test_a_page_has_the_maps_of_the_snapshots_and_needs_nothing_else(home: Path) -> None:
    for run, head in ((RUN, "dec.1.self.0"), ("runs/filmed-pairs", "dec.0.cross.1")):
        told(home, "--head", head, "--out", "heads.html", run=run)
        facts = page_data(home / "heads.html")
        history = read_history(Run(home / run))
        assert [found["name"] for found in facts["heads"]] == [head]
        assert facts["steps"] == history.steps
        assert facts["samples"] == [snapshot.sample for snapshot in history.snapshots]
        assert len(facts["texts"]) == len(facts["heads"][0]["maps"]) == len(history.labels.texts)
        for number, shown in enumerate(facts["heads"][0]["maps"]):
            data = np.frombuffer(base64.b64decode(shown["data"]), dtype=np.uint8)
            maps = data.reshape(len(history.steps), len(shown["rows"]), len(shown["columns"]))
            for snapshot, values in zip(history.snapshots, maps, strict=True):
                assert (snapshot.map_of(number, head) == values).all()
                assert np.abs(values.astype(float).sum(axis=1) - 255).max() <= len(shown["columns"]) / 2


def test_a_page_is_safe_for_any_text(home: Path) -> None:
    from glassformer.inspection.replay import History
    from glassformer.inspection.replay.page import make_page

    first = read_history(Run(home / RUN)).snapshots[0]
    odd = type(first)(**{**vars(first), "sample": "</script><script>alert(1)</script>"})
    page = make_page(History((odd,)), "<b>&", "dec.0.self.0")
    assert "<script>alert" not in page
    assert "<b>&" not in page


@pytest.mark.parametrize("name", ["heads.gif", "heads.png"])
def test_an_animation_has_a_frame_for_each_snapshot(name: str, home: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    told(home, "--head", "dec.0.self.1", "--role", "first", "--out", name)
    weights = read_history(Run(home / RUN)).snapshots[-1].map_of(0, "dec.0.self.1")
    with image.open(home / name) as picture:
        assert picture.n_frames == 6
        picture.seek(5)
        frame = np.asarray(picture.convert("RGB")).astype(int)
    cell = 400 // max(weights.shape)
    middles = 32 + cell // 2 + cell * np.arange(len(weights)), 40 + cell // 2 + cell * np.arange(weights.shape[1])
    red = frame[np.ix_(*middles)][..., 0]  # (T, S): 255 where the weight is 0, 0 where it is 1
    assert np.abs(255 - red - weights).max() <= (1 if name.endswith("png") else 4)  # a GIF has 256 colours


def test_errors_have_two_lines_and_leave_nothing(home: Path) -> None:
    def says(cause: str, remedy: str, *words: str, run: str = RUN) -> None:
        before = sorted(home.iterdir())
        first, second = refused("heads", run, *words, folder=home)
        assert cause in first
        assert remedy in second
        assert sorted(home.iterdir()) == before

    says(
        "runs/lm has no snapshots (train.snapshots = 0)",
        "--train.snapshots 32",
        "--history",
        run="runs/lm",
    )
    says("there is no head 'dec.7.self.0'", "Did you mean dec.", "--history", "--head", "dec.7.self.0")
    says("these snapshots have no role 'inducton'", "Did you mean induction?", "--history", "--role", "inducton")
    says(
        "--out heads.pdf is not the name of a page or animation",
        ".html, .gif or .png",
        "--history",
        "--out",
        "heads.pdf",
    )
    says("there is no folder no", "Create it first", "--history", "--out", "no/heads.html")
    says("--text was given with --history", "Remove --text", "--history", "--text", "the old dog")
    says("--plot was given with --history", "--out", "--history", "--plot", "roles.png")
    says("--importance was given with --history", "Remove one", "--history", "--importance")
    for option, value in (("--sort", "role"), ("--checkpoint", "best"), ("--device", "cpu")):
        says(f"{option} was given with --history", f"Remove {option}", "--history", option, value)
    says("--role was given without --history", "Add --history", "--role", "induction")
    says("--out was given without --history", "Add --history", "--out", "heads.html")
    first, second = refused(*train("lm", "--train.snapshots=65", out="runs/many"), folder=home)
    assert "train.snapshots" in first
    assert "64" in first + second


def test_a_run_that_is_still_training_shows_its_snapshots(home: Path) -> None:
    with folder_lock(home / RUN):
        done = here("heads", RUN, "--history", folder=home)
    assert done.returncode == 0
    assert "is still training: these are its snapshots so far" in done.stderr
