"""The views of replay, loss, probes and verification compared with the library, and their scripts."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.app.server.background import BackgroundTask
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.view import LIMIT
from glassformer.app.server.views import find_view, loss, replay
from glassformer.base.errors import GlassError
from glassformer.base.sealed import write_sealed
from glassformer.evaluation.evaluate import EvaluationRequest as Evaluate
from glassformer.evaluation.evaluate import evaluate_run
from glassformer.evaluation.probes.probe import PROBES, TAUGHT_BY, ProbeRequest, probe_run
from glassformer.inspection.replay import read_history
from glassformer.inspection.replay.of_run import agreement
from glassformer.runs.folder import Run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import Translator
from glassformer.training.journal import read_metrics, read_samples
from glassformer.verification import own_process
from glassformer.verification.report import CHECKS, saved_report
from tests.journey.commands import begin, ended
from tests.journey.task_runs import RUNS
from tests.unit.served_runs import learn

LEARNT = {
    "book": [*RUNS["lm"], "--model.layers=2", "--train.snapshots=4"],
    "fill": RUNS["masked"],
    "mails": RUNS["classify"],
    "turn": RUNS["translate"],
}
TEXTS = {
    "book": "It was a tall day when the dog met the bird. It was a tall day.",
    "fill": "It was a tall day when the dog met the bird.",
    "mails": "win a 7 pound prize now",
    "turn": "the old dog sleeps .",
}
SMALL = 40
"""Number of minimal pairs in a probe."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with runs of each family, in which commands run."""
    return learn(tmp_path_factory.mktemp("learnt"), LEARNT)


@pytest.fixture(scope="module")
def registry(home: Path) -> Iterator[ModelRegistry]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        yield ModelRegistry([home / "runs" / name for name in LEARNT], "cpu")


@pytest.fixture(scope="module")
def scripts() -> list[tuple[str, list[float]]]:
    """Return the scripts that the tests collect, each with the numbers that it must print, in order."""
    return []


def ask(registry: ModelRegistry, run: str, name: str, **question: Any) -> dict[str, Any]:
    """Return the response of a view to a JSON body."""
    view = find_view(name)
    opened = registry.open(run)
    reply = view.reply(opened, view.parse(json.dumps(question).encode()))
    assert len(reply.body) <= LIMIT
    found: dict[str, Any] = json.loads(reply.body)
    return found


def wait(registry: ModelRegistry, run: str, name: str, *path: str, **question: Any) -> dict[str, Any]:
    """Repeat a request until the background work at `path` in the response has ended, and return the response."""
    for _ in range(3000):  # the machine may be busy
        answer = ask(registry, run, name, **question)
        work = answer
        for key in path:
            work = work[key]
        if work["state"] not in ("waiting", "working"):
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{name} of {run} does not end")


def measured(registry: ModelRegistry, run: str, **question: Any) -> dict[str, Any]:
    """Return the answer of `loss` after all tokens are counted."""
    for _ in range(200):
        answer = ask(registry, run, "loss", text=TEXTS[run], **question)
        if answer["counts"] != "counting":
            return answer
        time.sleep(0.02)
    raise AssertionError("the counting does not end")


def facts_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of `loss` in the form of `glass probe --json`."""
    found = dict(answer["text"])
    columns = found.pop("each")
    found["each"] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {key: value for key, value in found.items() if key not in ("before", "target", "about")}


# where the loss is


@pytest.mark.thorough
@pytest.mark.parametrize("run", ["book", "fill"])
def test_the_surprisal_equals_that_of_glass_probe(
    registry: ModelRegistry, run: str, tmp_path: Path, scripts: list[tuple[str, list[float]]]
) -> None:
    (tmp_path / "typed.txt").write_text(TEXTS[run], encoding="utf-8")
    request = ProbeRequest(registry.open(run).folder, ["surprisal"], text=tmp_path / "typed.txt", device="cpu")
    wanted = probe_run(request).results[0].facts()
    wanted.pop("about")
    answer = measured(registry, run)
    assert answer["counts"] == "ready"
    assert facts_of(answer) == wanted
    nats = answer["text"]["each"]["nats"]
    assert answer["text"]["mean"] == pytest.approx(np.mean(nats), abs=1e-6)
    scripts.append((answer["python"], [*nats, answer["text"]["mean"]]))


@pytest.mark.thorough
def test_the_surprisal_of_a_target_equals_the_models(
    registry: ModelRegistry, scripts: list[tuple[str, list[float]]]
) -> None:
    answer = measured(registry, "turn", target="die katze schläft .")
    model = OpenedRun.load(registry.open("turn").folder, device="cpu").text_model
    assert isinstance(model, Translator)
    ids = [*model.tokenizer.target_start, *model.tokenizer.encode("die katze schläft ."), model.tokenizer.end_id]
    with torch.no_grad():
        logits = model.model(torch.tensor([model.prompt_ids(TEXTS["turn"])]), torch.tensor([ids[:-1]]))[0]
    chances = logits.double().log_softmax(dim=-1)
    wanted = [-float(chances[place, id]) for place, id in enumerate(ids[1:])]
    assert answer["text"]["each"]["nats"] == pytest.approx(wanted, abs=1e-6)
    assert answer["text"]["mean"] == pytest.approx(np.mean(wanted), abs=1e-6)
    scripts.append((answer["python"], answer["text"]["each"]["nats"]))
    written = measured(registry, "turn")
    assert written["text"]["target"] == registry.open("turn").subject(TEXTS["turn"]).target
    with pytest.raises(GlassError, match="the target has"):
        ask(registry, "turn", "loss", text=TEXTS["turn"], target="die " * 60)


@pytest.mark.parametrize("run", ["book", "turn"])
def test_the_validation_loss_equals_that_of_glass_evaluate(registry: ModelRegistry, run: str) -> None:
    assert ask(registry, run, "loss", text=TEXTS[run])["split"]["state"] == "idle"
    ask(registry, run, "loss", text=TEXTS[run], start=True)
    found = wait(registry, run, "loss", "split", text=TEXTS[run])["split"]["result"]
    wanted = evaluate_run(Evaluate(registry.open(run).folder, device="cpu")).facts()
    assert found["mean"] == pytest.approx(wanted["loss"], abs=1e-6)
    assert found["tokens"] == wanted["tokens"]


def test_the_validation_loss_of_a_masked_model_equals_that_of_glass_probe(registry: ModelRegistry) -> None:
    ask(registry, "fill", "loss", text=TEXTS["fill"], start=True)
    found = wait(registry, "fill", "loss", "split", text=TEXTS["fill"])["split"]["result"]
    wanted = probe_run(ProbeRequest(registry.open("fill").folder, ["surprisal"], device="cpu")).results[0].facts()
    assert {**found, "before": ""} == {key: value for key, value in wanted.items() if key != "each"} | {"before": ""}


def test_a_text_that_is_too_long_is_refused(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "MOST", 12)
    with pytest.raises(GlassError, match="at most 12 are allowed"):
        ask(registry, "book", "loss", text="It was a tall day when the dog met the bird and the child.")
    with pytest.raises(GlassError, match="no probability"):
        ask(registry, "mails", "loss", text=TEXTS["mails"])


# probes


def test_a_request_without_any_probe_is_refused(registry: ModelRegistry) -> None:
    request = ProbeRequest(registry.open("book").folder, without=tuple(PROBES), device="cpu")
    with pytest.raises(GlassError, match="no probe is left"):
        probe_run(request)


def test_the_loss_of_one_row_has_no_interval(registry: ModelRegistry) -> None:
    request = Evaluate(registry.open("book").folder, ablate=("dec.0.self.0",), tokens=20, device="cpu")
    _, full, without, _ = evaluate_run(request).text().splitlines()
    assert full.startswith("loss ")
    assert "(one row: no interval)" in full
    assert "(one row: no interval)" in without
    assert "95 %" not in full


@pytest.mark.thorough
@pytest.mark.parametrize("run", ["book", "fill"])
def test_probes_equal_those_of_glass_probe(
    registry: ModelRegistry, run: str, scripts: list[tuple[str, list[float]]]
) -> None:
    before = ask(registry, run, "probes", size=SMALL)
    assert (before["work"]["state"], before["results"]) == ("idle", [])
    ask(registry, run, "probes", size=SMALL, start=True)
    answer = wait(registry, run, "probes", "work", size=SMALL)
    report = probe_run(
        ProbeRequest(registry.open(run).folder, without=("surprisal",), size=SMALL, device="cpu")
    ).facts()
    assert {result.pop("name"): result for result in answer["results"]} == report["probes"]
    assert answer["notes"] == report["notes"]
    assert answer["names"] == list(TAUGHT_BY)
    assert set(report["probes"]) <= set(TAUGHT_BY)
    shares = [group["share"] for result in report["probes"].values() for group in result["groups"]]
    assert len(shares) > 5
    scripts.append((answer["python"], shares))


@pytest.mark.parametrize("run", ["mails", "turn"])
def test_runs_without_probabilities_of_a_text_have_no_probes(registry: ModelRegistry, run: str) -> None:
    with pytest.raises(GlassError, match="nothing to probe"):
        ask(registry, run, "probes", start=True)


# the report


@pytest.mark.thorough
def test_the_report_is_saved_with_the_hash_of_its_weights(
    registry: ModelRegistry, scripts: list[tuple[str, list[float]]]
) -> None:
    run = Run(registry.open("book").folder)
    before = ask(registry, "book", "verification")
    assert (before["report"], before["current"], before["work"]["state"]) == (None, False, "idle")
    ask(registry, "book", "verification", start=True)
    answer = wait(registry, "book", "verification", "work")
    kept = saved_report(run)
    assert kept is not None
    assert [check["name"] for check in answer["made"]] == answer["names"] == [check.name for check in CHECKS]
    assert answer["report"]["checks"] == kept["checks"] == answer["made"]
    assert (answer["current"], answer["report"]["ok"]) == (True, True)
    assert str(run.folder) not in json.dumps({**answer, "python": ""})
    scripts.append((answer["python"], [check["measured"] for check in kept["checks"] if check["measured"] is not None]))
    file = run.folder / "verify.json"
    write_sealed(file, {**kept, "weights_sha256": "0" * 64})
    assert ask(registry, "book", "verification")["current"] is False
    file.write_text(json.dumps({**kept, "checks": [{"name": "x"}]}), encoding="utf-8")
    with pytest.raises(GlassError, match=r"verify\.json does not record its own SHA-256"):
        saved_report(run)
    assert ask(registry, "book", "verification")["report"] is None
    write_sealed(file, kept)


def test_verifying_in_a_separate_process_raises_the_same_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_process.main(str(tmp_path / "nothing"), "best", "cpu")
    said = capsys.readouterr().out
    assert json.loads(said)["error"][0] == f"there is no run at {tmp_path / 'nothing'}"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{said.strip()}'\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(GlassError, match="there is no run at"):
        own_process.verify_in_subprocess(tmp_path / "nothing")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(GlassError, match="ended early with exit code 1"):
        own_process.verify_in_subprocess(tmp_path / "nothing")


# training replay


@pytest.mark.thorough
def test_the_replay_shows_the_recorded_snapshots(
    registry: ModelRegistry, scripts: list[tuple[str, list[float]]]
) -> None:
    run = Run(registry.open("book").folder)
    answer = ask(registry, "book", "replay")
    lines = read_metrics(run)
    history = read_history(run)
    assert answer["lines"] == len(lines) == 2
    for key, column in answer["curves"].items():
        assert column == [line[key] for line in lines]
    assert answer["validation"]["loss"] == [line["validation_loss"] for line in lines if "validation_loss" in line]
    film = answer["snapshots"]
    head, role = history.chosen(None, None)
    assert (film["steps"], film["head"], film["role"]) == (history.steps, head, role)
    assert film["losses"] == history.losses
    assert film["curve"] == [float(value) for value in history.curve(head, role)]
    assert film["scores"][film["heads"].index(head)] == film["curve"]
    assert film["samples"] == [snapshot.sample for snapshot in history.snapshots]
    shape = len(film["steps"]), len(film["rows"]), len(film["columns"])
    maps = np.frombuffer(base64.b64decode(film["maps"]), dtype=np.uint8).reshape(shape)
    wanted = np.stack([snapshot.map_of(film["text"], head) for snapshot in history.snapshots])
    np.testing.assert_array_equal(maps, wanted)
    scripts.append((answer["python"], [*(line["loss"] for line in lines), *film["curve"]]))


def test_another_head_role_and_text_are_shown_when_asked_for(registry: ModelRegistry) -> None:
    history = read_history(Run(registry.open("book").folder))
    head = history.labels.heads[-1]
    role = history.labels.roles[0]
    film = ask(registry, "book", "replay", head=head, role=role, text=len(history.labels.texts) - 1)["snapshots"]
    assert film["curve"] == pytest.approx(history.curve(head, role).tolist(), abs=1e-6)
    assert film["texts"][-1] == "repeated random tokens"
    assert film["rows"] == list(history.labels.texts[-1].source)
    for wrong in ({"head": "dec.9.self.0"}, {"role": "nothing"}, {"text": 90}):
        with pytest.raises(GlassError, match="no "):
            ask(registry, "book", "replay", **wrong)


def test_the_last_snapshot_agrees_with_the_current_weights(registry: ModelRegistry, tmp_path: Path) -> None:
    assert ask(registry, "book", "replay")["check"]["state"] == "idle"
    ask(registry, "book", "replay", check=True)
    check = wait(registry, "book", "replay", "check")["check"]
    assert (check["state"], check["found"]["step"]) == ("done", 20)
    assert check["found"]["maps"] <= 1 / 255
    assert check["found"]["scores"] == pytest.approx(0, abs=1e-6)
    assert check["found"]["losses"] == pytest.approx(0, abs=1e-6)
    run = Run(registry.open("book").folder)
    history = read_history(run)
    history.snapshots[-1].maps[0, "dec.0.self"][:] = 255
    off = agreement(run, history, "cpu")
    assert off is not None
    assert off.maps > 0.5
    later = Run(Path(shutil.copytree(run.folder, tmp_path / "later")))
    (later.snapshots_folder / "step-000020.npz").unlink()
    assert agreement(later, read_history(later), "cpu") is None


def test_a_run_without_snapshots_has_curves_and_names_the_setting(registry: ModelRegistry) -> None:
    answer = ask(registry, "turn", "replay")
    run = Run(registry.open("turn").folder)
    assert answer["snapshots"] is None
    assert "train.snapshots" in answer["why"]["remedy"]
    assert answer["curves"]["loss"] == [line["loss"] for line in read_metrics(run)]
    samples = [(sample["step"], sample["text"]) for sample in answer["samples"]]
    assert samples == read_samples(run)
    assert samples[-1][0] == 20
    assert "=>" in samples[-1][1]


def test_long_curves_are_thinned_and_incomplete_lines_are_skipped(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert (read_metrics(run), read_samples(run)) == ([], [])
    lines = [json.dumps({"step": step, "loss": 1 / step}) for step in range(1, 5001)]
    run.metrics_file.write_text("\n".join([*lines, '{"step": 5001, "lo']), encoding="utf-8")
    found = read_metrics(run)
    assert [line["step"] for line in found] == list(range(1, 5001))
    drawn = replay.evenly(found, replay.POINTS)
    assert (len(drawn), drawn[0], drawn[-1]) == (replay.POINTS, found[0], found[-1])
    assert replay.evenly(found[:7], replay.POINTS) == found[:7]


# long work


def test_background_tasks_take_turns_and_return_results() -> None:
    turns = threading.Lock()
    release = threading.Event()

    def slow(tell: Any) -> str:
        tell("half")
        assert release.wait(20)
        return "whole"

    def broken(tell: Any) -> None:
        raise GlassError("it broke", "Mend it.")

    first = BackgroundTask(slow, turns)
    while not first.results:
        time.sleep(0.01)
    second = BackgroundTask(broken, turns)
    assert (first.facts()["state"], first.results, first.result()) == ("working", ["half"], None)
    assert second.facts() == {"state": "waiting", "error": None}
    release.set()
    while not second.finished:
        time.sleep(0.01)
    assert (first.facts()["state"], first.result(), first.succeeded) == ("done", "whole", True)
    assert second.facts() == {"state": "failed", "error": {"what": "it broke", "remedy": "Mend it."}}


def test_background_tasks_are_kept_per_checkpoint(registry: ModelRegistry) -> None:
    opened = registry.open("mails")
    assert opened.task("nothing") is None
    first = opened.task("thing", lambda tell: 1)
    assert first is opened.task("thing")
    assert opened.background_lock is registry.open("book").background_lock


# the scripts


@pytest.mark.thorough
def test_the_scripts_print_the_numbers(home: Path, scripts: list[tuple[str, list[float]]]) -> None:
    """All scripts run in one process, after all other tests of this file."""
    assert len(scripts) == 7
    mark = "=== the next script"
    code = "\n".join(f"print({mark!r})\nexec(compile({script!r}, 'script', 'exec'), {{}})" for script, _ in scripts)
    done = ended(begin("-c", code, folder=home))
    assert done.returncode == 0, done.stderr
    for shown, (script, numbers) in zip(done.stdout.split(mark)[1:], scripts, strict=True):
        said = [value for word in shown.replace("[", " ").split() if (value := _number(word)) is not None]
        at = 0
        for number in numbers:  # in order; other output may be in between
            while at < len(said) and abs(said[at] - number) > 1e-6:
                at += 1
            assert at < len(said), f"{script}\nprints no {number} in its place:\n{shown}"
            at += 1


def _number(word: str) -> float | None:
    try:
        return float(word.strip("(),[]{}"))
    except ValueError:
        return None
