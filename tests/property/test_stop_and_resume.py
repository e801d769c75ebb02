"""A stopped, killed, edited or damaged run resumes with the results of an uninterrupted run, or raises an error."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base import files
from glassformer.base.errors import GlassError
from glassformer.base.files import write_folder
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run, open_run
from glassformer.tasks.losses import TrainingLoss
from glassformer.training import checkpoint as checkpoints
from glassformer.training import legs, loop
from glassformer.training.optimizers import check_optimizer_state
from glassformer.training.trainer import Trainer
from tests.journey.commands import begin, ended, here, start
from tests.journey.damage import edit, half, train, tree
from tests.property.trainers import (
    last_weights,
    record_files,
    resumed,
    same,
    small_trainer,
    stop_after,
    take_step,
    text_file,
)

RESUME = ("train", "--resume", "--out", "run")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a text and a finished run of 3 steps."""
    text_file(tmp_path)
    done = here(*train("proverbs.txt", out="run"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def kept(run: Run) -> dict[str, Any]:
    """Return all results of a run except times: weights, optimizer, progress, log, samples and pointers."""
    last = run.checkpoint("last")
    found: dict[str, Any] = {
        f"{file} {name}": tensor.numpy().tobytes()
        for file in ("model", "optimizer")
        for name, tensor in load_tensors(last / f"{file}.safetensors").items()
    }
    records = [json.loads((last / "state.json").read_text(encoding="utf-8"))["progress"]]
    records += [json.loads(line) for line in run.metrics_file.read_text(encoding="utf-8").splitlines()]
    for number, record in enumerate(records):
        found |= {f"{number} {name}": value for name, value in record.items() if name != "train_seconds"}
    found["samples"] = run.samples_file.read_text(encoding="utf-8")
    found |= {which: (run.folder / which).read_text(encoding="utf-8") for which in ("best", "last")}
    return found


# A signal


@pytest.mark.parametrize("changes", [{}, {"train__schedule": "plateau", "train__plateau_patience": 0}])
@pytest.mark.parametrize("step", [1, 5, 6, 13, 23])
def test_a_signal_does_not_change_the_results_of_a_run(tmp_path: Path, step: int, changes: dict[str, Any]) -> None:
    """The signal comes before, during or after the first evaluation at step 6, or in the last step."""
    straight = small_trainer(tmp_path, "straight", train__steps=23, **changes)
    loop.train(straight)
    stopped = small_trainer(tmp_path, "run", train__steps=23, **changes)
    stop_after(stopped, step)
    assert loop.train(resumed(tmp_path)) is not None
    assert kept(stopped.run) == kept(straight.run)


def test_a_run_stopped_before_its_first_evaluation_opens_with_its_newest_weights(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    stop_after(trainer, 5)
    assert trainer.state.evaluations == []
    for which in ("best", "last"):
        assert trainer.run.checkpoint(which).name == "step-000005"  # type: ignore[arg-type]
    done = here("generate", "run", "the", "--tokens", "3", folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals to one process")
def test_sigterm_before_the_first_evaluation_says_which_checkpoint_is_the_best(tmp_path: Path) -> None:
    text_file(tmp_path)
    settings = ("--steps", "1000000", "--set", "train.evaluate_every=1000000")
    process = start(*train("proverbs.txt", *settings, out="run"), folder=tmp_path)
    while not Run(tmp_path / "run").metrics_file.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    done = ended(process)
    assert done.returncode == 130
    assert "no evaluation yet: the last checkpoint counts as the best until the first evaluation" in done.stderr
    assert not Run(tmp_path / "run").samples_file.exists()
    assert here("generate", "run", "the", "--tokens", "2", folder=tmp_path).returncode == 0


def test_a_limit_below_the_steps_done_changes_nothing(tmp_path: Path) -> None:
    """The best checkpoint is measured, and no evaluation, metric or sample is added."""
    trainer = small_trainer(tmp_path)
    stop_after(trainer, 9)
    before = kept(trainer.run)
    outcome = loop.train(resumed(tmp_path, **{"train.steps": "5"}))
    assert outcome is not None
    assert (outcome.step, outcome.last_step) == (6, 9)
    assert "9 steps are done, and train.steps is 5" in outcome.reason
    assert kept(trainer.run) == before


def test_a_finished_run_prints_how_to_continue(folder: Path) -> None:
    done = here(*RESUME, folder=folder)
    assert done.returncode == 0, done.stderr
    (said,) = (line for line in done.stderr.splitlines() if "nothing left to train" in line)
    assert "all 3 steps are done" in said
    command = shlex.split(said.partition("change this limit: ")[2])
    assert command[0] == "glass"
    on = here(*command[1:], "--json", folder=folder)
    assert json.loads(on.stdout)["steps_done"] == 6, on.stderr


# Memory


def test_a_micro_batch_lowered_for_memory_stays_low(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out once, in step 3. The results are the same whether or not the run is stopped and resumed."""
    own = TrainingLoss.forward

    def train_with_little_memory(name: str, stop: int | None) -> Trainer:
        trainer = small_trainer(tmp_path, name)  # with dropout, the weights depend on the grouping of rows

        def forward(loss: TrainingLoss, batch: Any, targets: int) -> torch.Tensor:
            if trainer.state.step == 2 and len(batch.inputs) > 2:
                raise MemoryError
            return own(loss, batch, targets)

        with monkeypatch.context() as patch:
            patch.setattr(TrainingLoss, "forward", forward)
            if stop is None:
                loop.train(trainer)
            else:
                stop_after(trainer, stop)
        return trainer

    straight = train_with_little_memory("straight", None)
    assert straight.state.oom_retries == 1
    train_with_little_memory("run", 9)
    again = resumed(tmp_path)
    assert again.stepper.oom_retries.count == 1
    loop.train(again)
    assert kept(again.run) == kept(straight.run)


# Edited settings


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('optimizer = "muon"', 'optimizer = "adamw"'),
        ("batch = 4", "batch = 3"),
        ('activation = "swiglu"', 'activation = "geglu"'),
        ("layers = 1", "layers = 2"),
        ("seed = 0", "seed = 1"),
    ],
)
def test_an_edited_fixed_setting_is_refused_with_both_values(folder: Path, old: str, new: str) -> None:
    edit("run/config.toml", old, new)(folder)
    before = tree(folder)
    name = old.split(" = ")[0]
    was = old.split(" = ")[1].strip('"')
    now = new.split(" = ")[1].strip('"')
    for command in ([*RESUME, "--steps", "5"], ["generate", "run", "the"], ["count", "run"]):
        done = here(*command, folder=folder)
        assert done.returncode == 2, done.stderr
        problem, remedy = done.stderr.splitlines()
        assert "config.toml was edited" in problem
        assert f".{name}: {was} -> {now}" in problem
        assert "--resume" in remedy
        assert "--config" in remedy
    assert tree(folder) == before


def test_changed_limits_and_sampling_are_used_and_reported(folder: Path) -> None:
    done = here(*RESUME, "--steps", "5", "--sample.temperature", "0.5", "--json", folder=folder)
    assert json.loads(done.stdout)["steps_done"] == 5, done.stderr
    assert "train.steps: 3 -> 5" in done.stderr
    assert "sample.temperature: 0.8 -> 0.5" in done.stderr
    assert Run(folder / "run").config().sample.temperature == 0.5
    again = here(*RESUME, folder=folder)
    assert "settings changed" not in again.stderr


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_run_killed_while_its_settings_are_replaced_opens(
    folder: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed after some of the three writes: the manifest, the settings, and the manifest again."""
    run = Run(folder / "run")
    new = run.config().with_changes({"train.steps": "9"})
    write_text = files.write_text

    class KilledError(Exception):
        pass

    def write_or_die(path: Path, text: str) -> None:
        nonlocal written
        if written == 0:
            raise KilledError
        written -= 1
        write_text(path, text)

    for module in ("glassformer.runs.folder", "glassformer.base.sealed"):
        monkeypatch.setattr(f"{module}.write_text", write_or_die)
    steps = 9 if written == 2 else run.config().train.steps
    with pytest.raises(KilledError):
        run.replace_config(new)
    monkeypatch.undo()
    assert open_run(folder / "run").config().train.steps == steps
    assert here(*RESUME, "--steps", "4", folder=folder).returncode == 0
    assert "replaced_config" not in run.manifest()
    edit("run/config.toml", "\nsteps = 4", f"\nsteps = {steps}")(folder)
    with pytest.raises(GlassError, match="was edited"):
        open_run(folder / "run")


@pytest.mark.parametrize(("was", "now"), [("adamw", "muon"), ("muon", "adamw")])
def test_optimizer_state_of_another_optimizer_is_refused(tmp_path: Path, was: str, now: str) -> None:
    """PyTorch would load the state and crash in the next step."""
    trainer = small_trainer(tmp_path, train__optimizer=was)
    stop_after(trainer, 4)
    edit("run/config.toml", f'optimizer = "{was}"', f'optimizer = "{now}"')(tmp_path)
    record_files(tmp_path / "run")
    with pytest.raises(GlassError, match=r"the optimizer state in .* does not fit this run's settings"):
        resumed(tmp_path)


@pytest.mark.parametrize("fault", ["shape", "dtype", "missing", "unknown"])
def test_each_difference_of_optimizer_state_is_named(tmp_path: Path, fault: str) -> None:
    trainer = small_trainer(tmp_path)
    take_step(trainer)
    state = trainer.optimizers[0].state_dict()["state"]
    if fault == "shape":
        state[0]["exp_avg"] = state[0]["exp_avg"][:-1]
    elif fault == "dtype":
        state[0]["exp_avg"] = state[0]["exp_avg"].double()
    elif fault == "missing":
        del state[0]["exp_avg"]
    else:
        state[0]["velocity"] = state[0].pop("exp_avg")
    found = {
        f"0.{number}.{name}": (value.shape, value.dtype)
        for number, values in state.items()
        for name, value in values.items()
    }
    named = {"shape": "exp_avg is", "dtype": "float64", "missing": "lacks 0.0.exp_avg", "unknown": "0.0.velocity"}
    with pytest.raises(GlassError, match=re.escape(named[fault])):
        check_optimizer_state(tmp_path, found, trainer.optimizers)


# Checkpoints


def test_a_damaged_newest_checkpoint_is_reported_with_its_replacement(folder: Path) -> None:
    newer = shutil.copytree(folder / "run/checkpoints/step-000003", folder / "run/checkpoints/step-000004")
    (newer / "model.safetensors").write_bytes(half((newer / "model.safetensors").read_bytes()))
    done = here(*RESUME, "--steps", "5", folder=folder)
    assert done.returncode == 0
    (said,) = (line for line in done.stderr.splitlines() if "step-000004" in line)
    assert "model.safetensors is truncated" in said
    assert "resuming from step-000003 instead" in said


def test_unreferenced_checkpoints_are_removed_on_resume(folder: Path) -> None:
    run = Run(folder / "run")
    named = {run.checkpoint(which).name for which in ("best", "last")}  # type: ignore[arg-type]
    for step in (1, 2):
        shutil.copytree(run.checkpoint("last"), run.checkpoints_folder / f"step-00000{step}", dirs_exist_ok=True)
    assert here(*RESUME, folder=folder).returncode == 0
    assert {path.name for path in run.checkpoints_folder.iterdir()} == named


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "checkpoints/step-000003"])
def test_a_run_with_a_link_to_files_of_another_run_is_not_resumed(folder: Path, name: str) -> None:
    shutil.copytree(folder / "run", folder / "other")
    path = folder / "run" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(folder / "other" / name)
    before = kept(Run(folder / "other"))
    done = here(*RESUME, "--steps", "5", folder=folder)
    assert done.returncode == 2
    assert f"run/{name} is a link to {folder / 'other' / name}" in done.stderr
    assert kept(Run(folder / "other")) == before
    (folder / "link").symlink_to(folder / "other")
    assert here("train", "--resume", "--out", "link", "--steps", "4", folder=folder).returncode == 0


def test_a_link_with_a_name_that_training_does_not_write_is_kept(folder: Path) -> None:
    for name in ("notes.txt", "checkpoints/notes.txt"):
        (folder / "run" / name).symlink_to(folder / "proverbs.txt")
    done = here(*RESUME, "--steps", "4", folder=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "run" / "notes.txt").readlink() == folder / "proverbs.txt"


def test_a_resumed_run_that_trains_nothing_keeps_its_settings(folder: Path) -> None:
    before = (folder / "run" / "config.toml").read_bytes()
    done = here(*RESUME, "--steps", "2", "--train.device", "cpu", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "settings changed" not in done.stderr
    assert (folder / "run" / "config.toml").read_bytes() == before


def test_a_finished_run_stores_its_sample_settings_and_no_others(folder: Path) -> None:
    done = here(*RESUME, "--steps", "2", "--set", "sample.tokens=7", folder=folder)
    assert "settings changed: sample.tokens: 5 -> 7" in done.stderr.splitlines()
    config = Run(folder / "run").config()
    assert (config.sample.tokens, config.train.steps) == (7, 3)


def test_a_checkpoint_whose_replacement_was_killed_is_used(folder: Path) -> None:
    """If `write_folder` is killed between its two renames, the only checkpoint is in a hidden folder."""
    before = kept(Run(folder / "run"))
    code = """
import os, sys
from pathlib import Path
from glassformer.base import files
rename = files._replace
def killed(source, target):
    if target == Path("run/checkpoints/step-000003"):
        os._exit(9)
    rename(source, target)
files._replace = killed
files.write_folder(Path("run/checkpoints/step-000003"), lambda folder: (folder / "file").write_bytes(b"new"))
"""
    assert ended(begin("-c", code, folder=folder)).returncode == 9
    assert not (folder / "run/checkpoints/step-000003").exists()
    assert len(list((folder / "run/checkpoints").glob(".step-000003.*.old/step-000003/state.json"))) == 1
    assert here("generate", "run", "the", "--tokens", "2", folder=folder).returncode == 0
    done = here(*RESUME, folder=folder)
    assert done.returncode == 0, done.stderr
    assert kept(Run(folder / "run")) == before
    assert [path.name for path in (folder / "run/checkpoints").iterdir()] == ["step-000003"]


def test_an_error_while_a_folder_is_replaced_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "step-000001"
    write_folder(final, lambda inside: (inside / "file").write_bytes(b"old") and None)
    rename = files._replace

    def refuse(source: Path, target: Path) -> None:
        if target == final and source.parent.name.endswith(".partial"):
            raise OSError(5, "Input/output error", str(target))
        rename(source, target)

    monkeypatch.setattr(files, "_replace", refuse)
    with pytest.raises(GlassError, match="Input/output error"):
        write_folder(final, lambda inside: (inside / "file").write_bytes(b"new") and None)
    assert files.is_complete(final)
    assert (final / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_pointers_are_on_the_disk_before_a_checkpoint_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.name == "nt":
        pytest.skip("Windows cannot force a folder to the disk")
    trainer = small_trainer(tmp_path)
    trainer.save_checkpoint()
    take_step(trainer)
    order: list[str] = []
    point = Run.point
    sync = checkpoints.sync
    remove = Run.remove_other_checkpoints
    monkeypatch.setattr(Run, "point", lambda *given: (order.append("point"), point(*given)))
    monkeypatch.setattr(checkpoints, "sync", lambda path: (order.append(f"sync {path.name}"), sync(path)))
    monkeypatch.setattr(Run, "remove_other_checkpoints", lambda *given: (order.append("delete"), remove(*given)))
    trainer.save_checkpoint()
    assert order == ["point", "point", "sync run", "delete"]


# The folder of a new run


@pytest.mark.parametrize("renames", range(6))
def test_a_run_killed_during_creation_is_created_by_the_same_command(tmp_path: Path, renames: int) -> None:
    """Each file of the folder appears by a rename; the process is killed before one of these renames."""
    text_file(tmp_path)
    command = train("proverbs.txt", out="run")
    code = f"""
import os, sys
from glassformer.base import files
from glassformer.app.cli.main import main
rename, done = files._replace, []
def killed(source, target):
    if target.parent.name == "run":
        if len(done) == {renames}:
            os._exit(9)
        done.append(target.name)
    rename(source, target)
files._replace = killed
main({command})
"""
    assert ended(begin("-c", code, folder=tmp_path)).returncode == 9
    made = (tmp_path / "run" / "config.toml").exists()
    again = here(*(RESUME if made else command), folder=tmp_path)
    assert again.returncode == 0, again.stderr
    straight = here(*train("proverbs.txt", out="straight"), folder=tmp_path)
    assert straight.returncode == 0
    assert kept(Run(tmp_path / "run")) == kept(Run(tmp_path / "straight"))
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("run", "straight")]
    assert names[0] == names[1]


def test_an_incomplete_run_folder_with_a_foreign_file_is_refused(tmp_path: Path) -> None:
    from glassformer.runs.folder import CREATING, CREATING_TEXT

    text_file(tmp_path)
    (tmp_path / "run").mkdir()
    for name, text in {CREATING: CREATING_TEXT, "manifest.json": "{}", "thesis.txt": "years of work"}.items():
        (tmp_path / "run" / name).write_text(text, encoding="utf-8")
    before = tree(tmp_path / "run")
    done = here(*train("proverbs.txt", out="run"), folder=tmp_path)
    assert done.returncode == 2
    assert "run is not empty: it contains thesis.txt" in done.stderr
    assert tree(tmp_path / "run") == before


def test_an_incomplete_run_folder_of_conversations_is_recreated(tmp_path: Path) -> None:
    from glassformer.runs.folder import CREATING, CREATING_TEXT

    text_file(tmp_path)
    (tmp_path / "run").mkdir()
    for name, text in {
        CREATING: CREATING_TEXT,
        "manifest.json": "{}",
        "chat_template.jinja": "half of a templ",
    }.items():
        (tmp_path / "run" / name).write_text(text, encoding="utf-8")
    done = here(*train("proverbs.txt", out="run"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "chat_template.jinja").exists()


# Another machine


def test_the_manifest_records_the_machine_of_each_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "NEON")
    on = here(*RESUME, "--steps", "5", folder=folder)
    assert on.returncode == 0, on.stderr
    first, second = json.loads((folder / "run/manifest.json").read_text(encoding="utf-8"))["legs"]
    assert (first["first_step"], second["first_step"]) == (1, 4)
    for leg in (first, second):
        assert leg["threads"] == 1
        assert leg["device"] == "cpu"
        assert leg["precision"] in ("float32", "bfloat16")
        assert leg["processes"] == 1
        assert leg["packages"]["torch"] == torch.__version__
        assert leg["processor"] == legs.processor_name()
        assert leg["time"].startswith("20")
        assert leg["command"]
    assert second["instruction_set"] == "NEON"
    (said,) = (line for line in on.stderr.splitlines() if "changed since the last start of this run" in line)
    assert f"instruction set {first['instruction_set']} -> NEON" in said
    assert "results may differ, mostly in the last digits" in said
    assert "threads" not in said
    again = here(*RESUME, "--steps", "6", folder=folder)
    assert "changed since the last start of this run" not in again.stderr


def test_a_resume_without_a_step_is_not_recorded(folder: Path) -> None:
    assert here(*RESUME, folder=folder).returncode == 0
    assert len(json.loads((folder / "run/manifest.json").read_text(encoding="utf-8"))["legs"]) == 1


def test_a_run_of_a_later_version_is_recognized(folder: Path) -> None:
    """The settings contain a name that this version does not know, which is not an error of the user."""
    edit("run/manifest.json", '"format": 2', '"format": 3')(folder)
    edit("run/config.toml", "\nlayers = ", "\ndepth = ")(folder)
    for command in (RESUME, ("generate", "run", "the"), ("evaluate", "run")):
        done = here(*command, folder=folder)
        assert done.returncode == 2
        assert "run was made by another version of glassformer: its format is 3" in done.stderr
        assert "Use the version that made it" in done.stderr


def test_a_run_resumed_with_another_save_every_ends_with_the_same_weights(tmp_path: Path) -> None:
    straight = small_trainer(tmp_path, "straight")
    loop.train(straight)
    trainer = small_trainer(tmp_path)
    stop_after(trainer, 9)
    loop.train(resumed(tmp_path, **{"train.save_every": "3"}))
    assert same(last_weights(straight), last_weights(trainer))
