"""Run every command of the README as a newcomer does, and its Python code.

`.ci/run` runs the two set-up commands, which install the package; here only their form is checked. All other lines of
`sh` blocks are run in order, in one folder with a `book.txt` and the files of `task_files`. They are not changed,
except that `--minutes 5` becomes `--minutes 0.005`. Each command runs in a separate process; a shell parses all of them
except `glass serve`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from glassformer.corpora import find_text_corpus
from tests.journey.pages import ROOT, add_programs, blocks, lines_of, python, quick_shell, served, shell
from tests.journey.task_files import write_all

pytestmark = pytest.mark.thorough

README = ROOT / "README.md"
SHORTER = ("--minutes 5", "--minutes 0.005")
SETUP = [
    "pip install -c constraints.txt -e . && glass demo",
    'pip install -c constraints.txt -e ".[all,test]" && pytest',
]


def commands() -> list[str]:
    """Return the lines of all `sh` blocks except the set-up commands."""
    return [line for block in blocks(README, "sh") for line in lines_of(block) if not line.startswith("pip ")]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a book, the files of `task_files`, and `programs/glass` for shells."""
    folder = tmp_path_factory.mktemp("newcomer")
    book = "\n".join(find_text_corpus("stories").documents(300, seed=1)) + "\n"
    write_all(folder)
    (folder / "book.txt").write_text(book.replace("Once upon a time", "It was long ago"), encoding="utf-8")
    add_programs(folder)
    return folder


def test_the_installation_commands_come_first() -> None:
    lines = [line for block in blocks(README, "sh") for line in lines_of(block)]
    assert [line for line in lines if line.startswith("pip ")] == SETUP
    assert lines[: len(SETUP)] == SETUP


def test_every_other_command_is_glass_and_prints_the_documented_output(newcomer: Path) -> None:
    done = {}
    for command in commands():
        assert command.startswith("glass "), command
        run = served if command.startswith("glass serve ") else quick_shell  # it would not end by itself
        done[command] = run(command.replace(*SHORTER), newcomer)
    assert len(done) == len(commands()) >= 8, "a command stands twice, or some are gone"
    assert any(SHORTER[0] in command for command in done)
    for command, shown in done.items():
        first = shown.splitlines()[0]
        match command.split()[1:3]:
            case ["train", _]:
                assert "is ready: glass " in shown
            case ["generate", _] if "--top" in command:
                assert len(shown.splitlines()) == 1 + 5
            case ["generate", "runs/en-de"]:
                assert shown.count("\n") == 1
            case ["classify", _]:
                assert {line.split()[-1] for line in shown.splitlines()} == {"spam", "work", "family"}
            case ["fill", _]:
                assert "[MASK] 1: " in shown
                assert "[MASK]" not in first
            case ["chat", _]:
                assert shown.count("\n") == 1
            case ["generate", _]:
                assert shown.startswith("It was")
                assert len(shown) > 50
            case ["evaluate", _]:
                assert "bits per byte" in shown
                assert "gzip" in shown
            case ["explain", *_]:
                assert "walk.html" in shown or "Softmax" in shown
            case ["receipt", _]:
                assert "sum of parts" in shown
            case ["look", _]:
                assert (newcomer / "maps.png").stat().st_size > 1000
            case ["heads", _]:
                assert "dec.0.self.0" in shown
            case ["attribute", _]:
                assert "layer" in shown
            case ["probe", _]:
                assert "nats" in shown
            case ["prune", _]:
                assert "is ready: glass " in shown
            case ["compare", _]:
                assert "against the baseline" in shown
            case ["verify", _]:
                assert "0 failed" in shown
            case ["doctor", *_]:
                assert "All agree" in shown
            case ["serve", _]:
                assert first.startswith("book: http://127.0.0.1:")
            case ["share", _]:
                assert (newcomer / "book.html").stat().st_size > 100_000
            case ["export", _] | ["import", _]:
                assert "identical" in shown or "is ready: glass " in shown
            case ["count", _]:
                assert first.startswith("shakespeare-nano: ")
            case ["learn", "list"]:
                assert "softmax" in shown
            case ["learn", "start"]:
                assert "Stable softmax" in shown
                assert (newcomer / "glass-learn" / "02_softmax.py").is_file()
            case ["learn", "hint"]:
                assert "hint 1 of 3" in shown
            case ["learn", "glossary"]:
                assert first.lower().startswith("causal mask")
            case ["data", "list"]:
                assert "stories" in shown
            case other:
                raise AssertionError(f"no promise is known of {other}")


def test_the_python_code_gives_the_text_of_the_command(newcomer: Path) -> None:
    if not (newcomer / "runs" / "book").exists():  # this test alone
        shell("glass train book.txt --out runs/book --steps 2 --set train.warmup=0", newcomer)
    (block,) = blocks(README, "python")
    written = python(block.code, newcomer)
    assert written
    assert "It was" + written + "\n" == shell('glass generate runs/book "It was"', newcomer)


def test_a_moved_run_needs_nothing_else(newcomer: Path, tmp_path: Path) -> None:
    """The README says that a run folder contains everything that the model needs."""
    if not (newcomer / "runs" / "book").exists():  # this test alone
        shell("glass train book.txt --out runs/book --steps 2 --set train.warmup=0", newcomer)
    here = shell('glass generate runs/book "It was"', newcomer)
    shutil.copytree(newcomer / "programs", tmp_path / "programs")
    shutil.copytree(newcomer / "runs" / "book", tmp_path / "elsewhere" / "taken")
    assert shell('glass generate elsewhere/taken "It was"', tmp_path) == here
