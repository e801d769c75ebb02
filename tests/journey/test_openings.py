"""A run folder with an altered file is refused by every reader, and a run that was trained again is loaded again."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.app.server.listing import Listing
from glassformer.app.server.registry import ModelRegistry
from glassformer.base.errors import GlassError
from glassformer.runs.folder import Run, open_run
from glassformer.runs.opening import OpenedRun
from tests.journey.api_server import serving
from tests.journey.commands import here
from tests.journey.damage import edit, one_byte, train
from tests.property.trainers import record_files, resumed, small_trainer, stop_after, text_file

SWAPPED = '["spam", "ham"]\n'
READERS = {
    "lm": [["generate", "{run}", "the"], ["count", "{run}"], ["evaluate", "{run}"], ["doctor", "{run}"]],
    "classify": [["classify", "{run}", "win a prize"]],
    "masked": [["fill", "{run}", "the [MASK]"]],
    "translate": [["generate", "{run}", "the dog"]],
}
EVERYWHERE = [
    ["share", "{run}", "--out", "page.html"],
    ["export", "{run}", "--to", "onnx", "--out", "out"],
    ["train", "--resume", "--out", "{run}"],
    ["train", "book.txt", "--from", "{run}", "--out", "child"],
    ["heads", "{run}"],
    ["prune", "{run}", "--fraction", "0.5", "--out", "small"],
]


def refusals(folder: Path, run: str, commands: list[list[str]]) -> set[str]:
    """Return the first lines of the errors of the commands, which must exit with code 2 and two lines."""
    problems = set()
    for command in commands:
        done = here(*(part.format(run=run) for part in command), folder=folder)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 2), (command, done.stdout, done.stderr)
        problems.add(done.stderr.splitlines()[0])
    return problems


def alterations(task: str) -> dict[str, Callable[[Path], object]]:
    """Return changes to the files of a run, by the file that the error must name."""
    common = {
        "config.toml": edit("config.toml", "\nnorm = ", "\nnorm_eps = 0.1\nnorm = "),
        "tokenizer.json": lambda folder: (folder / "tokenizer.json").write_bytes(
            one_byte((folder / "tokenizer.json").read_bytes())
        ),
        "manifest.json": edit("manifest.json", '"text_hash": "', '"text_hash": "0'),
    }
    if task == "classify":
        common["labels.json"] = lambda folder: (folder / "labels.json").write_text(SWAPPED, encoding="utf-8")
    return common


@pytest.mark.thorough
@pytest.mark.parametrize("task", READERS)
def test_every_reader_refuses_altered_settings_vocabulary_and_manifest(
    task: str, task_home: Path, tmp_path: Path
) -> None:
    shutil.copy(task_home / "book.txt", tmp_path)
    for name, alter in alterations(task).items():
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        run = Path(shutil.copytree(task_home / "runs" / task, tmp_path / "run"))
        alter(run)
        (problem,) = refusals(tmp_path, "run", [*READERS[task], *(EVERYWHERE if task == "lm" else [])])
        assert problem.startswith(f"run{os.sep}{name} "), problem
        with pytest.raises(GlassError, match=name.replace(".", r"\.")):
            gf.load(run)
        (listed,) = Listing(ModelRegistry([tmp_path / "run"], "cpu")).all() if name != "manifest.json" else [None]
        if listed is not None:
            assert name in listed["error"]["what"]
        done = here("verify", "run", "--only", "vocabulary", folder=tmp_path)
        assert done.returncode == 1, done.stdout
        assert name in done.stdout


def test_pointers_are_refused_if_exchanged_edited_or_foreign(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    stop_after(trainer, 9)
    other = small_trainer(tmp_path, "other", train__seed=1)
    stop_after(other, 9)
    run = trainer.run
    best = (run.folder / "best").read_text(encoding="utf-8")
    last = (run.folder / "last").read_text(encoding="utf-8")
    name = run.checkpoint("last").name
    texts = [last, best.replace(best.split()[0], name), name, (other.run.folder / "best").read_text(encoding="utf-8")]
    for text in texts:
        (run.folder / "best").write_text(text, encoding="utf-8")
        if text == best:
            continue
        with pytest.raises(GlassError, match="was edited, or belongs to another run"):
            run.checkpoint("best")
    resumed(tmp_path)
    assert (run.folder / "best").read_text(encoding="utf-8") == best


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    """The checkpoint is intact, and its sizes fit: only the seeds of the two runs differ."""
    trainer = small_trainer(tmp_path)
    stop_after(trainer, 5)
    other = small_trainer(tmp_path, "other", train__seed=1)
    stop_after(other, 5)
    theirs = other.run.checkpoint("last")
    ours = trainer.run.checkpoints_folder / theirs.name
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    with pytest.raises(GlassError, match="is a checkpoint of another run"):
        OpenedRun.load(trainer.run.folder, "last", "cpu")
    assert ours not in trainer.run.complete_checkpoints()


def test_a_template_added_to_a_language_model_is_used_and_a_recorded_one_must_not_change(
    task_home: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(task_home / "runs" / "lm", tmp_path / "lm"))
    (run / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    assert open_run(run).chat_template() == "{{ messages[0].content }}"
    talk = Path(shutil.copytree(task_home / "runs" / "chat", tmp_path / "chat"))
    (talk / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    with pytest.raises(GlassError, match=r"chat_template\.jinja was altered"):
        open_run(talk)


# A run that is deleted and trained again


def train_again(folder: Path, text: str) -> None:
    """Train the run `run` for three steps on a text, after deleting the former run."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "book.txt").write_text(text, encoding="utf-8")
    done = here(*train("book.txt", out="run"), folder=folder)
    assert done.returncode == 0, done.stderr


def test_a_run_trained_again_to_the_same_step_is_served_anew(tmp_path: Path) -> None:
    train_again(tmp_path, "abab abba " * 60)
    with serving([tmp_path / "run"]) as served:

        def answers() -> list[Any]:
            """Return what the API, a view and the listing say."""
            completion = served.http.post(
                "/v1/completions", json={"model": "run", "prompt": " ", "max_tokens": 8, "temperature": 0}
            ).json()
            view = served.http.post("/api/runs/run/tokens", json={"text": "ab"}).json()
            listed = served.http.get("/api/runs").json()["runs"][0]
            return [completion["choices"][0]["text"], view["version"], listed["version"], listed["vocabulary"]]

        first = answers()
        assert first == answers()
        train_again(tmp_path, "cdcd cddc e " * 60)
        second = answers()
        assert second[1] == second[2] == Run(tmp_path / "run").checkpoint_version("best")
        assert [a == b for a, b in zip(first, second, strict=True)] == [False] * 4
        assert set(second[0]) <= set("cde ")
        assert first[1].partition(".")[0] == second[1].partition(".")[0]
        kept = {"heads": ["dec.0.self.0"], "name": "small", "version": first[1]}
        refused = served.http.post("/api/runs/run/keep", json=kept)
        assert refused.status_code == 400
        assert "instead of" in refused.json()["error"]["what"]
        shutil.rmtree(tmp_path / "run")
        gone = served.http.post("/v1/completions", json={"model": "run", "prompt": " ", "max_tokens": 8})
        assert gone.status_code >= 400
        assert "there is no run" in gone.text


# The text of a run


def test_a_changed_text_is_reported_on_resuming(tmp_path: Path) -> None:
    path = text_file(tmp_path)
    trainer = small_trainer(tmp_path)
    stop_after(trainer, 5)

    def notes() -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            found: list[str] = []
            patch.setattr("glassformer.training.reporting.Silent.note", lambda self, text: found.append(text))
            resumed(tmp_path)
        return [note for note in found if "this run began" in note]

    assert not notes()
    text = path.read_text(encoding="utf-8")
    os.utime(path, (1, 1))  # another time, the same text
    assert not notes()
    path.write_text(text.upper(), encoding="utf-8")
    (note,) = notes()
    assert f"{path} differs from the text with which this run began" in note
    assert "--from" in note
    path.unlink()
    assert not notes()


# Sizes beyond those of the weights


@pytest.mark.parametrize(
    ("sizes", "word"),
    [
        ({"layers": 1_000_000}, "1,000,000 layers"),
        ({"width": 999_999_999_996}, "width 999,999,999,996"),
        ({"context": 999_999_999_999}, "shape"),
        ({"hidden": 999_999_999_999}, "shape"),
        ({"heads": 100_000_000, "head_width": 1}, "100,000,000 heads"),
    ],
)
def test_sizes_beyond_the_weights_are_refused_before_a_model_is_built(
    sizes: dict[str, int], word: str, tmp_path: Path
) -> None:
    """The manifest is that of the changed settings, as in a folder that another program wrote."""
    trainer = small_trainer(tmp_path, model__positions="learned")
    stop_after(trainer, 2)
    run = trainer.run.folder
    settings = (run / "config.toml").read_text(encoding="utf-8")
    for name, size in sizes.items():
        settings, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {size}", settings, count=1)
        assert count
    (run / "config.toml").write_text(settings, encoding="utf-8")
    record_files(run)
    for command in (["generate", "run", "the"], ["train", "--resume", "--out", "run", "--steps", "9"]):
        done = here(*command, folder=tmp_path)
        assert done.returncode == 2
        assert word in done.stderr
        assert len(done.stderr.splitlines()) == 2
    (listed,) = Listing(ModelRegistry([run], "cpu")).all()
    assert word in listed["error"]["what"]
    if word != "shape":  # `count` builds no tensors
        assert word in here("count", "run", folder=tmp_path).stderr


def test_the_divisor_of_a_huge_prime_width_is_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[model]\nwidth = 999999999989\nheads = 5\n", encoding="utf-8")
    done = here("train", "stories", "--config", "c.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "heads = 5 does not divide width" in done.stderr
    assert "Set heads to 1" in done.stderr
