"""`glass compare` from the command line: grids that finish, are killed, fail in part, or are refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from glassformer.base.errors import GlassError
from glassformer.experiments import runner
from glassformer.experiments.grid import Grid
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from tests.journey.commands import here, start
from tests.journey.damage import tree
from tests.property.trainers import same, text_file

pytestmark = pytest.mark.thorough

SMALL = [
    "--set",
    "model.layers=1",
    "--set",
    "model.width=16",
    "--set",
    "model.heads=2",
    "--set",
    "model.context=12",
    "--set",
    "tokenizer.kind=characters",
    "--set",
    "train.batch=4",
    "--set",
    "train.evaluate_every=4",
    "--set",
    "train.save_every=4",
    "--set",
    "sample.tokens=5",
]
MASK = ["compare", "proverbs.txt", "--vary", "remove=nothing,causal-mask", *SMALL, "--jobs", "1", "--out", "grid"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text, and a finished comparison of two cells and two seeds; `said.json` has its output."""
    folder = tmp_path_factory.mktemp("compare")
    text_file(folder)
    done = here(*MASK, "--steps", "8", "--seeds", "2", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "said.json").write_text(done.stdout, encoding="utf-8")
    return folder


def facts(text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_a_comparison_reports_every_cell(home: Path) -> None:
    told = facts((home / "said.json").read_text(encoding="utf-8"))
    assert [cell["cell"] for cell in told["cells"]] == ["remove=nothing", "remove=causal-mask"]
    for number, cell in enumerate(told["cells"]):
        files = sorted((home / "grid" / "results").glob(f"{number:02d}-*.json"))
        losses = [facts(file.read_text(encoding="utf-8"))["loss"] for file in files]
        assert cell["of_each_seed"] == losses
        assert cell["mean"] == pytest.approx(sum(losses) / 2)
        assert cell["writing_loss"] > 0
        assert (cell["restored_loss"] == pytest.approx(cell["mean"], abs=1e-6)) == (number == 0)
        assert cell["failed"] == []
    page = (home / "grid" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert not any(word in page for word in ("<script", "src=", "<link", "@import"))
    words = (home / "grid" / "report.md").read_text(encoding="utf-8")
    assert "A standard deviation from two seeds is very uncertain" in words
    assert {path.name for path in (home / "grid").glob("*.svg")} == {"curves.svg", "bars.svg"}


def test_a_cell_equals_a_run_of_train_bit_for_bit(home: Path) -> None:
    grid = Grid.read(home / "grid")
    job = grid.job(0, seed=1)  # the third run of one process: those before it left nothing behind
    (home / "cell.toml").write_text(job.config.to_toml(), encoding="utf-8")
    done = here("train", "--config", "cell.toml", "--out", "alone", "--json", folder=home)
    assert done.returncode == 0, done.stderr
    runs = Run(home / "alone"), Run(home / "grid" / "runs" / job.name)
    assert same(*(load_tensors(run.checkpoint("last") / "model.safetensors") for run in runs))
    result = facts((home / "grid" / "results" / f"{job.name}.json").read_text(encoding="utf-8"))
    assert facts(done.stdout)["loss"] == result["loss"]


def test_other_commands_refuse_a_run_with_a_removed_part(home: Path) -> None:
    whole, open_ = (f"grid/runs/{job.name}" for job in Grid.read(home / "grid").jobs()[:2])
    assert here("generate", whole, "a", "--tokens", "3", folder=home).returncode == 0
    for words in (
        ["generate", open_, "a"],
        ["evaluate", open_],
        ["verify", open_],
        ["train", "--resume", "--out", open_],
    ):
        refused = here(*words, folder=home)
        assert refused.returncode == 2, words
        assert "part of an experiment: its model has no causal mask" in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 2


def test_a_comparison_resumes_only_with_unfinished_runs(home: Path, tmp_path: Path) -> None:
    before = tree(home / "grid" / "runs")
    again = here(*MASK, "--steps", "8", "--seeds", "2", "--json", folder=home)
    assert again.stdout == (home / "said.json").read_text(encoding="utf-8")
    assert "already done: 4 of 4 runs" in again.stderr
    other = here(*MASK, "--steps", "9", "--seeds", "2", folder=home)
    assert (other.returncode, other.stderr.splitlines()[-2:]) == (
        2,
        [
            "grid contains a comparison with train.steps = 8, not 9",
            "Give the same settings to resume it, or another --out.",
        ],
    )
    text = (home / "proverbs.txt").read_text(encoding="utf-8")
    (home / "proverbs.txt").write_text(text + "one more\n", encoding="utf-8")
    changed = here(*MASK, "--steps", "8", "--seeds", "2", folder=home)
    (home / "proverbs.txt").write_text(text, encoding="utf-8")
    assert changed.returncode == 2
    assert "proverbs.txt has changed since" in changed.stderr
    after = tree(home / "grid" / "runs")
    assert {name: digest for name, digest in after.items() if not name.startswith(".tokens")} == {
        name: digest for name, digest in before.items() if not name.startswith(".tokens")
    }
    more = here(*MASK, "--steps", "8", "--seeds", "3", "--json", "--baseline", "remove=causal-mask", folder=home)
    told = facts(more.stdout)
    assert [len(cell["of_each_seed"]) for cell in told["cells"]] == [3, 3]
    assert told["baseline"] == "remove=causal-mask"
    assert "already done: 4 of 6 runs" in more.stderr


def workers(folder: Path) -> list[psutil.Process]:
    """Return the processes that train in a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        if "glassformer.experiments.worker" in (process.info["cmdline"] or []) and process.info["cwd"] == str(folder):
            found.append(process)
    return found


def test_a_killed_comparison_resumes_to_the_same_result(tmp_path: Path) -> None:
    text_file(tmp_path)
    more = ["--set", "model.dropout_residual=0.1", "--set", "train.evaluate_every=40", "--seeds", "1", "--jobs", "1"]
    words = ["compare", "proverbs.txt", "--vary", "train.steps=4,400", *SMALL, *more, "--out", "grid"]
    process = start(*words, folder=tmp_path)
    second = tmp_path / "grid" / "runs" / "01-steps=400-seed-0" / "checkpoints"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not any(second.glob("step-*[1-9]*")):
        time.sleep(0.002)
    assert process.poll() is None, "it ended before it could be killed"
    (training,) = workers(tmp_path)
    process.kill()
    process.wait()
    training.wait(timeout=10)  # who has lost its parent ends too
    first = tmp_path / "grid" / "results" / "00-steps=4-seed-0.json"
    kept = first.stat().st_mtime_ns
    assert not first.with_name("01-steps=400-seed-0.json").exists()
    done = here(*words, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert first.stat().st_mtime_ns == kept
    assert "With one seed there is no standard deviation" in facts(done.stdout)["warnings"][0]
    job = Grid.read(tmp_path / "grid").job(1, 0)
    (tmp_path / "cell.toml").write_text(job.config.to_toml(), encoding="utf-8")
    assert here("train", "--config", "cell.toml", "--out", "alone", folder=tmp_path).returncode == 0
    runs = Run(tmp_path / "alone"), Run(tmp_path / "grid" / "runs" / job.name)
    assert same(*(load_tensors(run.checkpoint("last") / "model.safetensors") for run in runs))


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    text_file(tmp_path)
    words = ["compare", "proverbs.txt", "--vary", "model.context=12,100000", *SMALL[:6], *SMALL[8:]]
    done = here(*words, "--steps", "4", "--seeds", "1", "--jobs", "1", "--out", "grid", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "01-context=100000-seed-0 failed: the training split has" in done.stdout
    assert "context=12 " in done.stdout
    assert "none finished" in (tmp_path / "grid" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--vary", "model.positons=learned,none", "--out", "x"], "there is no setting 'model.positons'"),
        (["--vary", "model.positions=none", "--out", "x"], "fewer than two values"),
        (["--vary", "model.positions=none,none", "--out", "x"], "has none twice"),
        (["--vary", "model.positions=learned,none"], "glass compare was given without --out"),
        (["--out", "x"], "nothing varies"),
        (["--vary", "model.layers=1,2", "--from", "run", "--out", "x"], "unknown option --from"),
        (["--vary", "model.layers=1,2", "--chat-template", "x.jinja", "--out", "x"], "x.jinja does not exist"),
        (["--vary", "model.positions=learned,none", "--out", "full"], "full is not empty: it contains mine.txt"),
        (["--vary", "model.positions=learned,none", "--out", "proverbs.txt"], "proverbs.txt is a file"),
        (["--vary", "model.positions=learned,none", "--out", "x", "--seeds", "0"], "--seeds 0 is less than one"),
        (["--vary", "model.positions=learned,none", "--out", "x", "--jobs", "0"], "--jobs 0 is less than one"),
        (
            ["--vary", "model.positions=learned,none", "--out", "x", "--baseline", "positions=lerned"],
            "unknown baseline cell 'positions=lerned'",
        ),
        (
            ["--study", "cost", "--vary", "model.layers=1,2", "--out", "x"],
            "--study cost takes no DATA, settings, recipe, config file, --vary or --baseline",
        ),
        (["--study", "cost", "--seeds", "3", "--out", "x"], "--study cost was given with --seeds"),
        (["--study", "cost", "--jobs", "1", "--out", "x"], "--study cost was given with --jobs"),
        (["--vary", "model.context=100000,200000", "--out", "x"], "the training split has"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(words: list[str], problem: str, tmp_path: Path) -> None:
    text_file(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x", encoding="utf-8")
    before = tree(tmp_path)
    source = [] if "cost" in words else ["proverbs.txt"]
    refused = here("compare", *source, *words, folder=tmp_path)
    assert refused.returncode == 2
    assert problem in refused.stderr
    assert len([line for line in refused.stderr.splitlines() if problem in line]) == 1
    assert tree(tmp_path) == before


@pytest.mark.parametrize("source", ["proverbs.txt", "missing.txt"])
def test_a_refused_text_removes_only_what_compare_made(source: str, tmp_path: Path) -> None:
    text_file(tmp_path)
    (tmp_path / "mine").mkdir()
    words = ["compare", source, "--vary", "model.context=100000,200000", "--out"]
    before = tree(tmp_path)
    assert here(*words, "mine", folder=tmp_path).returncode == 2
    assert here(*words, "mine/new/one", folder=tmp_path).returncode == 2
    assert tree(tmp_path) == before


def test_a_file_that_was_added_while_the_text_was_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_file(tmp_path)
    (tmp_path / "grid").mkdir()

    def add_and_refuse(folder: Path, *_: object) -> None:
        (folder / "notes.txt").write_text("mine", encoding="utf-8")
        (folder / "runs" / "notes.txt").write_text("mine", encoding="utf-8")
        raise GlassError("the text is too short", "Give a longer text.")

    monkeypatch.setattr(runner, "_prepare_texts", add_and_refuse)
    words = ["compare", "proverbs.txt", "--vary", "model.layers=1,2", "--out", "grid"]
    assert here(*words, folder=tmp_path).returncode == 2
    assert tree(tmp_path / "grid").keys() == {"notes.txt", "runs", "runs/notes.txt"}
