"""Train in several processes with torchrun: kill one, stop all with Ctrl-C, resume with another number of processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from tests.journey.commands import Running, begin, ended, here
from tests.property.trainers import text_file

SETTINGS = [
    word
    for setting in (
        "model.layers=2",
        "model.width=32",
        "model.heads=2",
        "model.context=24",
        "tokenizer.kind=characters",
        "train.batch=7",
        "train.save_every=4",
        "train.evaluate_every=20",
        "train.log_every=1",
        "sample.tokens=5",
    )
    for word in ("--set", setting)
] + ["--recipe", "shakespeare-nano"]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX signals"),
]


def torchrun(*arguments: str, folder: Path, restarts: int = 0) -> Running:
    """Start `torchrun … -m glassformer train …` with two processes."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    return begin(*command, "-m", "glassformer", "train", *arguments, folder=folder)


def wait_for_step(run: Path, step: int, process: Running) -> None:
    """Wait until the run has logged a step."""
    while f'"step": {step},' not in (text := read(run)):
        assert process.poll() is None, text + str(process.communicate())
        time.sleep(0.02)


def read(run: Path) -> str:
    """Return the log of the run, or an empty string if there is none."""
    log = run / "metrics.jsonl"
    return log.read_text(encoding="utf-8") if log.exists() else ""


def losses(run: Path, steps: int) -> list[float]:
    """Return the losses of all steps, each of which must be logged exactly once."""
    lines = [json.loads(line) for line in read(run).splitlines()]
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    return [line["loss"] for line in lines]


def test_a_killed_process_is_restarted_and_nothing_is_lost(tmp_path: Path) -> None:
    text_file(tmp_path)
    arguments = ["proverbs.txt", "--steps", "150", *SETTINGS]
    assert here("train", *arguments, "--out", "straight", folder=tmp_path).returncode == 0
    watched = torchrun(*arguments, "--out", "killed", "--json", folder=tmp_path, restarts=1)
    wait_for_step(tmp_path / "killed", 30, watched)
    workers = {worker.environ()["RANK"]: worker for worker in psutil.Process(watched.pid).children()}
    workers["1"].kill()
    done = ended(watched)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps_done"] == 150  # one object, of the first process
    assert "resuming killed after step" in done.stderr
    straight, killed = (losses(tmp_path / name, 150) for name in ("straight", "killed"))
    assert killed == pytest.approx(straight, abs=1e-5)


def test_a_stopped_sharded_run_resumes_in_one_process_and_opens(tmp_path: Path) -> None:
    text_file(tmp_path)
    arguments = ["proverbs.txt", "--steps", "40", *SETTINGS]
    assert here("train", *arguments, "--out", "straight", folder=tmp_path).returncode == 0
    asked = torchrun(*arguments, "--out", "sharded", "--shard", folder=tmp_path)
    wait_for_step(tmp_path / "sharded", 6, asked)
    asked.send_signal(signal.SIGINT)
    stopped = ended(asked)
    assert stopped.stderr.count("stopped after step") == 1
    steps = len(read(tmp_path / "sharded").splitlines())
    checkpoint = tmp_path / "sharded" / "checkpoints" / (tmp_path / "sharded" / "last").read_text().split()[0]
    assert checkpoint.name == f"step-{steps:06d}"
    assert (checkpoint / "optimizer-2-of-2.safetensors").exists()
    checks = ("--only", "checkpoints", "--only", "settings")
    for command in (("generate", "sharded", "the "), ("evaluate", "sharded"), ("verify", "sharded", *checks)):
        opened = here(*command, folder=tmp_path)
        assert opened.returncode == 0, opened.stdout + opened.stderr
    done = here("train", "--resume", "--out", "sharded", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    straight, sharded = (losses(tmp_path / name, 40) for name in ("straight", "sharded"))
    assert sharded == pytest.approx(straight, abs=1e-5)
    shown = [json.loads(here("evaluate", name, "--json", folder=tmp_path).stdout) for name in ("straight", "sharded")]
    assert shown[1]["loss"] == pytest.approx(shown[0]["loss"], abs=1e-5)


@pytest.mark.parametrize("way", [(), ("--shard",)])
def test_a_child_trained_by_several_processes_equals_one_by_one_process(way: tuple[str, ...], tmp_path: Path) -> None:
    """Use rows of the parent's text, averaged weights, frozen parts and gradient checkpointing; then resume."""
    text_file(tmp_path)
    assert here("train", "proverbs.txt", "--steps", "20", *SETTINGS, "--out", "parent", folder=tmp_path).returncode == 0
    precise = [
        "--precision",
        "fp32",
        "--train.log_every",
        "1",
        "--train.evaluate_every",
        "5",
        "--train.save_every",
        "4",
    ]
    child = ["proverbs.txt", "--from", "parent", "--mix", "0.3", "--train.average", "ema", *precise]
    child += ["--train.checkpoint_blocks", "true", "--train.freeze", "layers.0", "--steps", "12"]
    alone = here("train", *child, "--out", "alone", "--json", folder=tmp_path)
    assert alone.returncode == 0, alone.stderr
    together = ended(torchrun(*child, *way, "--out", "together", "--json", folder=tmp_path))
    assert together.returncode == 0, together.stderr
    one, other = (json.loads(done.stdout) for done in (alone, together))
    for name in ("loss", "first_loss", "parent_losses"):
        assert other[name] == pytest.approx(one[name], abs=1e-5)
    assert losses(tmp_path / "together", 12) == pytest.approx(losses(tmp_path / "alone", 12), abs=1e-5)
    more = ended(torchrun("--resume", "--out", "together", "--steps", "15", "--json", folder=tmp_path))
    assert more.returncode == 0, more.stderr
    assert here("train", "--resume", "--out", "alone", "--steps", "15", folder=tmp_path).returncode == 0
    assert losses(tmp_path / "together", 15) == pytest.approx(losses(tmp_path / "alone", 15), abs=1e-5)


def test_a_sharded_run_is_limited_by_minutes(tmp_path: Path) -> None:
    """The run evaluates before its first step, so evaluation allocates the sharding buffers that training reuses."""
    text_file(tmp_path)
    limited = torchrun("proverbs.txt", "--minutes", "0.1", *SETTINGS, "--shard", "--out", "short", folder=tmp_path)
    done = ended(limited)
    assert done.returncode == 0, done.stderr
    assert "short is ready" in done.stdout


def test_hosts_with_other_settings_are_refused(tmp_path: Path) -> None:
    text_file(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    words += [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=two", "-m", "glassformer", "train", "proverbs.txt"]
    seeds = ("1", "2")
    hosts = [
        begin(*words, *SETTINGS, "--steps=9", "--out", "run", f"--train.seed={seed}", folder=tmp_path) for seed in seeds
    ]
    done = [ended(host) for host in hosts]
    assert all(each.returncode for each in done)
    said = "".join(each.stderr for each in done)
    assert said.count("the processes of this run differ: train.seed is ") == 1
    assert "1 (rank" in said
    assert "2 (rank" in said
    assert not (tmp_path / "run").exists()
