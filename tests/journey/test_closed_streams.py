"""Commands work, or fail with their usual exit code, if standard streams are closed, as by `>&-`, `2>&-` and `<&-`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from itertools import chain, combinations
from pathlib import Path

import pytest

from glassformer.app.cli.main import COMMANDS
from tests.journey.commands import begin, ended, environment
from tests.journey.damage import RUN, train

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="cmd.exe cannot close streams")
CLOSED = tuple(chain.from_iterable(combinations((0, 1, 2), count) for count in (1, 2, 3)))
STREAMS = ("stdin", "stdout", "stderr")


def run(words: list[str], closed: tuple[int, ...], folder: Path) -> tuple[int, str, str]:
    """Run a command with closed streams; return its exit code, standard output and standard error."""
    lines = ["import os, sys", *(f"os.close({number}); sys.{STREAMS[number]} = None" for number in closed)]
    lines += ["from glassformer.app.cli.main import main", f"sys.argv = ['glass', *{words!r}]", "sys.exit(main())"]
    done = ended(begin("-c", "\n".join(lines), folder=folder))
    return done.returncode, done.stdout, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("closed", CLOSED)
def test_streams_that_stay_open_receive_what_they_always_do(closed: tuple[int, ...], tmp_path: Path) -> None:
    for words in (["--help"], ["explain", "--json"], ["train", "missing.txt"], ["nothing"]):
        code, out, error = run(words, (), tmp_path)
        expected = (code, "" if 1 in closed else out, "" if 2 in closed else error)
        assert run(words, closed, tmp_path) == expected, words


@pytest.mark.thorough
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_every_command_starts(closed: tuple[int, ...], tmp_path: Path) -> None:
    for command in COMMANDS:
        for words in ([command, "--help"], [command, "--no-such-option", "--json"]):
            code, out, error = run(words, closed, tmp_path)
            assert code == (2 if "--json" in words else 0), (words, out, error)
            assert "This is a bug" not in out + error


@pytest.mark.parametrize("closed", [(2,), pytest.param((0, 1, 2), marks=pytest.mark.thorough)])
def test_a_run_is_trained(closed: tuple[int, ...], here: Path) -> None:
    assert run([*train("proverbs.txt", out="new"), "--json"], closed, here)[0] == 0
    code, out, _ = run(["train", "--resume", "--out", "new", "--steps", "4", "--json"], (2,), here)
    assert code == 0
    assert json.loads(out)["step"] <= 4


def test_standard_input_that_is_closed_is_empty(here: Path) -> None:
    code, out, error = run(["generate", str(RUN), "-"], (0,), here)
    assert (code, out) in ((0, out), (2, ""))
    assert "This is a bug" not in error
    code, _, error = run(train("-", out="new"), (0,), here)
    assert code == 2
    assert error.splitlines()[0] == "standard input contains no text (0 bytes)"


@pytest.mark.thorough
@pytest.mark.parametrize("redirection", ["<&- >&- 2>&-", "2>&-"])
def test_the_shell_closes_the_streams_of_train_compare_and_serve(redirection: str, here: Path) -> None:
    """Commands that start other processes, which inherit the streams."""

    def shell(*words: str | Path) -> subprocess.Popen[bytes]:
        python = [sys.executable, "-m", "glassformer", *map(str, words)]
        return subprocess.Popen(
            ["sh", "-c", f'exec "$@" {redirection}', "sh", *python], cwd=here, env=environment(), stdout=subprocess.PIPE
        )

    assert shell(*train("proverbs.txt", out="new"), "--minutes", "0.05").wait() == 0
    compare = [
        "compare",
        *train("proverbs.txt", "--vary", "model.positions=none,rotary", "--seeds", "1", out="grid")[1:],
    ]
    assert shell(*compare).wait() == 0
    assert (here / "grid" / "report.md").is_file()
    assert shell("verify", RUN).wait() == 0
    port = 20_000 + os.getpid() % 20_000
    served = shell("serve", RUN, "--port", str(port), "--no-open")
    try:
        deadline = time.monotonic() + 60
        answer = b""
        while not answer and time.monotonic() < deadline and served.poll() is None:
            try:
                answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models").read()
            except OSError as error:
                if getattr(error, "code", None) is not None:  # refused without a key, but served
                    answer = b"served"
                time.sleep(0.1)
        assert answer
    finally:
        served.terminate()
        served.wait()


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of bash, in which $GLASS is the program, and return its result."""
    program = {**environment(), "GLASS": f"{sys.executable} -m glassformer"}
    words = ["bash", "-c", f"set -o pipefail; {command}"]
    return subprocess.run(words, cwd=folder, env=program, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_messages_that_cannot_be_written_change_no_exit_code(here: Path) -> None:
    words = " ".join(train("proverbs.txt", out="new"))
    assert shell("$GLASS train missing.txt 2>/dev/full", here).returncode == 2
    assert shell(f"$GLASS {words} 2>/dev/full", here).returncode == 0
    assert (here / "new" / "best").is_file()


@pytest.mark.thorough
def test_training_goes_on_if_the_reader_of_its_messages_ends(here: Path) -> None:
    words = " ".join(train("proverbs.txt", out="new"))
    assert shell(f"$GLASS {words} 2>&1 | head -1", here).returncode == 0
    assert (here / "new" / "best").is_file()


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_written_is_reported(option: str, here: Path) -> None:
    done = shell(f"$GLASS {option} >/dev/full", here)
    assert done.returncode == 2
    assert done.stderr.startswith("the disk is full: standard output")
    assert len(done.stderr.splitlines()) == 2
    assert shell(f"$GLASS {option} | true", here).returncode == 0
