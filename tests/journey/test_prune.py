"""`glass prune` on a tiny run of every task: the new run works like any other, and refused commands write nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from glassformer.app.cli.prune import KINDS, ORDERS
from glassformer.base.config import CONVERSATIONS, PAIRS
from glassformer.inspection.ablation import HEAD_KINDS
from glassformer.inspection.pruning.order import Order
from glassformer.runs.folder import Run
from tests.journey.commands import here
from tests.journey.task_runs import DOES, TASKS, refused

FEW = ("--tokens", "200")


def facts(*arguments: str, folder: Path) -> dict[str, Any]:
    """Return the one JSON object that a command writes to standard output with --json."""
    done = here(*arguments, "--json", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def home(task_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all runs and, for each, a run `runs/NAME-half` in which half of the heads are removed."""
    folder = tmp_path_factory.mktemp("pruned") / "home"
    shutil.copytree(task_home, folder)
    for name in TASKS:
        said = facts("prune", f"runs/{name}", "--out", f"runs/{name}-half", "--fraction", "0.5", *FEW, folder=folder)
        (folder / f"{name}-half.json").write_text(json.dumps(said), encoding="utf-8")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", TASKS)
def test_the_new_run_does_what_a_run_does(home: Path, name: str) -> None:
    """The new run has fewer heads and parameters, generates text or labels, can be evaluated, and resumes training."""
    said = json.loads((home / f"{name}-half.json").read_text(encoding="utf-8"))
    new = f"runs/{name}-half"
    config = Run(home / new).config()
    total = 6 if name in ("translate", "two", "summarize") else 2
    assert len(said["removed"]) == total // 2
    assert sorted(config.model.removed_heads) == sorted(said["removed"])
    whole, counted = (facts("count", run, folder=home)["parameters"] for run in (f"runs/{name}", new))
    assert said["parameters"] == {"before": whole, "after": counted}
    assert counted < whole
    command, given = DOES[name]
    spoken = here(command, new, given, folder=home)
    assert spoken.returncode == 0, spoken.stderr
    few = ("--examples", "1") if config.train.task in (*PAIRS, *CONVERSATIONS) else ()
    measured = facts("evaluate", new, *few, folder=home)
    assert measured["loss"] > 0
    on = facts("train", "--resume", "--out", new, "--steps", "70", folder=home)
    assert on["steps_done"] == 70
    assert Run(home / new).config().model.removed_heads == config.model.removed_heads


def test_the_loss_told_is_the_loss_evaluated(home: Path) -> None:
    said = facts("prune", "runs/lm", "--out", "runs/told", "--heads", "1", "--tokens", "100000", folder=home)
    assert facts("evaluate", "runs/told", folder=home)["loss"] == pytest.approx(said["new_loss"], abs=2e-4)
    assert facts("evaluate", "runs/lm", folder=home)["loss"] == pytest.approx(said["loss"], abs=2e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["lm", "translate"])
def test_the_new_run_passes_verify_and_records_its_origin(home: Path, name: str) -> None:
    new = f"runs/{name}-gates"
    said = facts(
        "prune", f"runs/{name}", "--out", new, "--l0", "3", "--steps", "30", "--gate-rate", "0.4", *FEW, folder=home
    )
    assert said["removed"]
    done = here("verify", new, folder=home)
    assert "FAIL" not in done.stdout
    assert done.returncode == 0, done.stdout
    origin = Run(home / new).manifest()["pruned"]
    assert (origin["from"], origin["by"], origin["penalty"]) == (str(Path(f"runs/{name}")), "l0", 3.0)
    assert origin["heads"] == said["removed"]
    state = json.loads((Run(home / new).checkpoint("last") / "state.json").read_text(encoding="utf-8"))["progress"]
    assert state["step"] == state["best_step"] == int(origin["checkpoint"].removeprefix("step-")) + 30


@pytest.mark.thorough
def test_a_pruned_run_is_exported(home: Path) -> None:
    done = here("export", "runs/lm-half", "--to", "onnx", "--out", "lm.onnx", folder=home)
    assert done.returncode == 0, done.stderr


def test_effects_and_curves_are_reported(home: Path) -> None:
    said = facts(
        "prune", "runs/two", "--effects", "mean", "--curve", "--random-orders", "2", "--step", "0.5", *FEW, folder=home
    )
    assert [each["name"] for each in said["effects"]][:2] == ["enc.0.self.0", "enc.0.self.1"]
    assert {each["name"] for each in said["effects"] if each["direct"] is None} == {"enc.0.self.0", "enc.0.self.1"}
    assert {name: len(each) for name, each in said["curves"].items()} == {"importance": 1, "reverse": 1, "random": 2}
    for points in said["curves"]["random"]:
        assert [point["removed"] for point in points] == [0, 3, 6]
        assert points[0]["loss"] == pytest.approx(said["loss"])
    assert set(said["attentions"]) == {"enc.0.self", "dec.0.self", "dec.0.cross"}
    shown = here("prune", "runs/two", "--effects", "mean", "--curve", "--random-orders", "1", *FEW, folder=home).stdout
    for word in (
        "mean effect: ",
        "direct effect: ",
        "later layers can compensate",
        "heads removed",
        "without any head of",
    ):
        assert word in shown


def test_a_picture_is_drawn(home: Path) -> None:
    words = ("prune", "runs/lm", "--curve", "--random-orders", "2", "--plot", "curve.svg", *FEW)
    assert here(*words, folder=home).returncode == 0
    picture = (home / "curve.svg").read_text(encoding="utf-8")
    for words_in_it in ("heads removed", "validation loss (nats)", "random, mean of 2", "reverse"):
        assert f"<!-- {words_in_it} -->" in picture
    assert not list(home.glob("*.partial"))


def test_a_limit_on_the_loss_is_respected(home: Path) -> None:
    losses = [p["loss"] for p in facts("prune", "runs/lm", "--curve", *FEW, folder=home)["curves"]["importance"][0]]
    limit = (losses[0] + losses[-1]) / 2
    if not losses[1] <= limit < losses[2]:
        limit = losses[1] + 1e-6
    said = facts("prune", "runs/lm", "--out", "runs/limit", "--max-loss", str(limit), *FEW, folder=home)
    assert said["new_loss"] <= limit
    assert len(said["removed"]) == max(i for i in range(3) if all(each <= limit for each in losses[: i + 1]))


@pytest.mark.thorough
def test_heads_are_listed_with_their_importance(home: Path) -> None:
    found = facts("heads", "runs/translate", "--importance", folder=home)["heads"]
    words = ("prune", "runs/translate", "--effects", "zero", "--tokens", "100000")
    wanted = {each["name"]: each["importance"] for each in facts(*words, folder=home)["effects"]}
    assert {head["name"]: head["importance"] for head in found} == pytest.approx(wanted)
    assert min(wanted.values()) > 0


def test_the_command_offers_all_orders_and_ablations() -> None:
    assert get_args(Order) == ORDERS
    assert KINDS == HEAD_KINDS


BAD = [
    ([], "there is nothing to do"),
    (["--out", "new"], "no amount to prune was given"),
    (["--out", "new", "--heads", "1", "--fraction", "0.5"], "2 amounts to prune were given"),
    (["--heads", "1"], "no --out"),
    (["--out", "new", "--heads", "3"], "--heads = 3, but the model has 2 heads"),
    (["--out", "new", "--fraction", "1.5"], "--fraction 1.5 is out of range"),
    (["--out", "new", "--heads", "1", "--step", "0"], "--step 0 is out of range"),
    (["--out", "new", "--max-loss", "0.001"], "with all heads"),
    (["--out", "new", "--max-loss", "nan"], "--max-loss nan is not finite"),
    (["--out", "new", "--l0", "-1"], "--l0 -1 is out of range"),
    (["--out", "new", "--l0", "0.1", "--gate-rate", "0"], "--gate-rate 0 is out of range"),
    (["--out", "new", "--heads", "1", "--rate", "0.1"], "--rate was given without --l0"),
    (["--out", "runs/masked", "--heads", "1"], "already contains a run"),
    (["--curve", "--plot", "curve.gif"], "not the name of a picture"),
    (["--effects", "zero", "--plot", "curve.png"], "without --curve"),
    (["--out", "new", "--heads", "1", "--by", "ablation", "--per-layer"], "importance is not used"),
    (["--curve", "--tokens", "0"], "--tokens 0 is too small"),
    (["--out", "new", "--heads", "1", "--random-orders", "3"], "--random-orders has no effect here"),
    (["--out", "new", "--l0", "0.1", "--by", "random"], "--by has no effect here"),
    (["--out", "new", "--l0", "0.1", "--step", "0.5"], "--step has no effect here"),
    (["--effects", "zero", "--by", "reverse"], "--by has no effect here"),
    (["--out", "new", "--heads", "1", "--seed", "7"], "--seed has no effect here"),
]


@pytest.mark.parametrize(("words", "problem"), BAD, ids=lambda value: value if isinstance(value, str) else None)
def test_bad_requests_are_refused_and_leave_nothing(home: Path, words: list[str], problem: str) -> None:
    before = sorted(path for path in home.rglob("*") if ".tokens" not in path.parts)
    assert problem in refused("prune", "runs/lm", *words, folder=home)[0]
    assert sorted(path for path in home.rglob("*") if ".tokens" not in path.parts) == before


def test_a_failing_disk_leaves_no_new_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassformer.inspection.pruning.new_run.save_checkpoint", full)
    problem, _ = refused("prune", "runs/lm", "--out", "deep/new", "--heads", "1", *FEW, folder=home)
    assert "the disk is full" in problem
    assert not (home / "deep").exists()
