"""The campaigns' comparison finds every change, and processes stop before the chosen file operation."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.campaigns.comparing import differences
from tests.campaigns.configurations import CONFIGURATIONS
from tests.campaigns.outputs import Ended, judge
from tests.campaigns.stopping import Stop
from tests.journey.commands import begin, ended, here

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this system has no /proc, which campaigns read")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a small run with snapshots."""
    (tmp_path / "text.txt").write_text("one two three four five\n" * 90, encoding="utf-8")
    settings = [
        "--steps=4",
        "--train.snapshots=2",
        "--train.evaluate_every=2",
        "--model.context=16",
        "--model.layers=1",
    ]
    settings += ["--model.width=12", "--model.heads=2", "--train.threads=1", "--sample.tokens=4", "--train.log_every=1"]
    done = here("train", "text.txt", "--out", "run", *settings, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "run"


def changes(run: Path) -> Iterator[tuple[str, bytes]]:
    """Yield changes to the compared files of a run folder: the path of a file, and its content after one change."""
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.is_file() and name != "lock":
            content = path.read_bytes()
            if name.endswith((".safetensors", ".npz")):
                yield name, content[:-1] + bytes([content[-1] ^ 1])
            elif path.name == "manifest.json":
                yield name, content.replace(b'"text_hash": "', b'"text_hash": "0').replace(b"state.json", b"other.json")
            elif name == "metrics.jsonl":
                yield name, content[: content.rindex(b"{")]
                yield name, content.replace(b'"loss": ', b'"loss": 1', 1)
            else:
                digit = next(byte for byte in b"0123456789e" if byte in content)
                yield name, content.replace(bytes([digit]), b"7" if digit != ord("7") else b"8")


def test_every_change_to_a_run_is_found(run: Path) -> None:
    copy = run.with_name("copy")
    shutil.copytree(run, copy)
    assert differences(run, copy) == []
    for name, content in changes(run):
        (copy / name).write_bytes(content)
        assert any(name in found for found in differences(run, copy)), name
        shutil.copyfile(run / name, copy / name)
    (copy / "last").unlink()
    (copy / "checkpoints" / "step-000001").mkdir()
    (copy / "checkpoints" / "step-000001" / "state.json").write_text("{}", encoding="utf-8")
    assert differences(run, copy) == ["last is missing", "checkpoints/step-000001 is left over"]


def test_times_may_differ(run: Path) -> None:
    copy = run.with_name("copy")
    shutil.copytree(run, copy)
    for path in (copy / "metrics.jsonl", *copy.glob("checkpoints/*/state.json")):
        text = path.read_text(encoding="utf-8")
        assert '"train_seconds": 0.' in text
        path.write_text(text.replace('"train_seconds": 0.', '"train_seconds": 9.'), encoding="utf-8")
    assert differences(run, copy) == []


def test_configurations_cover_all_promised_settings(tmp_path: Path) -> None:
    assert len(CONFIGURATIONS) >= 16
    settings = [each.sections(tmp_path) for each in CONFIGURATIONS]
    train = [each["train"] for each in settings]
    assert {each["task"] for each in train} == {"lm", "masked", "classify", "translate", "summarize"}
    schedules = {"constant", "linear", "cosine", "wsd", "noam", "plateau"}
    assert {each.get("schedule", "cosine") for each in train} == schedules
    assert {each.get("optimizer", "adamw") for each in train} == {"adamw", "muon"}
    assert any(each["precision"] == "bf16" for each in train)
    for name in ("micro_batch", "snapshots", "patience", "shard"):
        assert any(each.get(name) for each in train), name
    assert any(each["model"].get("dropout_residual") for each in settings)
    assert sum(each.several for each in CONFIGURATIONS) == 2


def test_a_process_stops_before_the_chosen_file_operation(tmp_path: Path) -> None:
    code = (
        "import json, sys; from tests.campaigns.stopping import Stop, install\n"
        "from pathlib import Path; from glassformer.base.files import write_text\n"
        "install(Stop(**json.loads(sys.argv[1])))\n"
        "for name in ('a', 'b'): write_text(Path(sys.argv[2]) / name, name)\n"
    )
    for before in (None, 1, 2, 3, 4, 5):
        folder = tmp_path / str(before)
        folder.mkdir()
        log = tmp_path / f"{before}.log"
        stop = Stop(str(folder), str(log), before)
        process = begin("-c", code, json.dumps(asdict(stop)), str(folder), folder=ROOT)
        done = ended(process)
        operations = [line.partition(" ")[0] for line in log.read_text(encoding="utf-8").splitlines()]
        if before is None:
            assert done.returncode == 0, done.stderr
            every = operations
            assert every[:4] == ["mkdir", "open", "fsync", "rename"]
        else:
            assert done.returncode == -9
            assert operations == every[:before]
            assert (folder / "a").exists() == (before > 4)


def test_every_wrong_outcome_of_two_commands_is_found() -> None:
    alone = {"a": "A", "b": "B"}
    refused = Ended("b", 2, ["another glass command is writing r/out", "Wait."])
    done = [Ended(name, 0, []) for name in alone]
    assert judge([done[0], refused], "out", "A", alone) == []
    assert judge(done, "out", "B", alone) == []
    assert judge(done, "out", "half", alone) == ["the output is not that of a or b, but of no command"]
    assert judge([done[0], refused], "out", "B", alone) == ["the output is not that of a, but of ['b']"]
    assert judge([done[0], refused], "out", "half", alone) == ["the output is not that of a, but of no command"]
    assert judge([refused, refused], "out", None, alone) == ["no command succeeded"]
    for said in (["cannot use r/out: it is gone", "Check the disk."], ["r/out already exists and is not overwritten"]):
        assert judge([done[0], Ended("b", 2, said)], "out", "A", alone)
    assert judge([done[0], Ended("b", 1, refused.said)], "out", "A", alone)
