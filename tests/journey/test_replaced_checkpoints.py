"""Commands read a checkpoint once: training may replace it while they verify it, and again as soon as it is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.base.errors import GlassError
from glassformer.base.locks import folder_lock
from glassformer.inspection.pruning.chosen_heads import prune_chosen_heads
from glassformer.inspection.pruning.new_run import open_for_pruning, read_training_state
from glassformer.runs.folder import Run, Which
from glassformer.runs.opening import OpenedRun
from tests.journey.commands import here
from tests.journey.damage import RUN
from tests.trained import copy_runs

NAMES = ("step-000003", "step-000004")
Replace = Callable[[], None]


@pytest.fixture(scope="module")
def two_checkpoints(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of `world` with a run at step 4, and its two last checkpoints also in the folder `kept`."""
    folder = tmp_path_factory.mktemp("two")
    copy_runs(world, folder)
    for number, name in enumerate(NAMES):
        if number:
            done = here("train", "--resume", "--out", RUN, "--steps", "4", folder=folder)
            assert done.returncode == 0, done.stderr
        shutil.copytree(folder / RUN / "checkpoints" / name, folder / "kept" / name)
    return folder


@pytest.fixture
def home(two_checkpoints: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder that a test may change."""
    copy_runs(two_checkpoints, tmp_path)
    return tmp_path


def replacing(home: Path) -> Replace:
    """Return a function that replaces the run's only checkpoint by the other one, as training does."""
    run = Run(home / RUN)
    numbers = [3, 4]

    def replace() -> None:
        numbers.reverse()
        new = run.checkpoints_folder / f"step-{numbers[0]:06d}"
        if not new.exists():
            shutil.copytree(home / "kept" / new.name, new)
        run.point("best", new)
        run.point("last", new)
        run.remove_other_checkpoints({new.name})

    replace()
    return replace


COMMANDS = {
    "prune": ["prune", RUN, "--heads", "1", "--out", "new"],
    "effects": ["prune", RUN, "--effects", "zero"],
    "gates": ["prune", RUN, "--l0", "0.01", "--steps", "2", "--out", "new"],
    "hf": ["export", RUN, "--to", "hf", "--out", "new"],
    "onnx": ["export", RUN, "--to", "onnx", "--out", "new"],
    "gguf": ["export", RUN, "--to", "gguf", "--out", "new.gguf"],
    "share": ["share", RUN, "--out", "new.html"],
    "verify": ["verify", RUN],
    "evaluate": ["evaluate", RUN],
    "generate": ["generate", RUN, "the"],
    "heads": ["heads", RUN],
    "look": ["look", RUN, "the dog", "--json"],
    "attribute": ["attribute", RUN, "the dog"],
    "explain": ["explain", RUN, "the dog"],
    "receipt": ["receipt", RUN, "the dog", "--snippet", "new.py"],
    "from": ["train", "proverbs.txt", "--from", RUN, "--steps", "2", "--out", "new"],
}
QUICK = ("prune", "share", "from", "receipt")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in COMMANDS]
)
def test_a_command_succeeds_while_training_replaces_checkpoints(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = replacing(home)
    checkpoint = Run.checkpoint
    load = OpenedRun.load.__func__  # type: ignore[attr-defined]
    first: list[str] = []

    def found(run: Run, which: Which = "best") -> Path:
        folder = checkpoint(run, which)
        if not first and run.folder == RUN:
            first.append(folder.name)
            replace()  # after it was verified, before it is read
        return folder

    def loaded(cls: type[OpenedRun], folder: Path, *given: object, **more: object) -> OpenedRun:
        opened = load(cls, folder, *given, **more)
        if opened.folder == RUN:
            replace()
        return opened  # type: ignore[no-any-return]

    monkeypatch.setattr(Run, "checkpoint", found)
    monkeypatch.setattr(OpenedRun, "load", classmethod(loaded))
    with folder_lock(home / RUN) if name == "verify" else pytest.MonkeyPatch.context():
        done = here(*COMMANDS[name], folder=home)
    assert first
    assert done.returncode == 0, done.stderr


def test_chosen_heads_are_kept_only_if_the_checkpoint_that_is_pruned_has_the_expected_version(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = replacing(home)
    monkeypatch.chdir(home)
    opened = open_for_pruning(RUN, "best", "cpu", print)
    replace()
    pruned = read_training_state(opened, "best").opened
    newest = OpenedRun.load(RUN)
    assert (pruned.step, pruned.version, pruned.loss) == (newest.step, newest.version, newest.loss)
    assert pruned.version != opened.version
    load = OpenedRun.load.__func__  # type: ignore[attr-defined]

    def loaded(cls: type[OpenedRun], *given: object, **more: object) -> OpenedRun:
        found = load(cls, *given, **more)
        replace()
        return found  # type: ignore[no-any-return]

    monkeypatch.setattr(OpenedRun, "load", classmethod(loaded))
    with pytest.raises(GlassError, match=rf"is now {opened.version} instead of {pruned.version}\nInspect"):
        prune_chosen_heads(RUN, Path("new"), ["dec.0.self.0"], version=pruned.version)
    assert not Path("new").exists()
