"""The lock of an output: one for all paths to it, for every command that writes one, and gone with its process."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassformer.app.cli.main import COMMANDS, Parser, command_module
from glassformer.base import files
from glassformer.base.errors import GlassError
from glassformer.base.files import atomic_file, new_output, output_path, write_text
from glassformer.base.locks import output_lock
from tests.journey.commands import begin, ended, here

READ = {"run", "path", "--config", "--from", "--chat-template", "--input", "--examples", "--tokenizer", "--text"}
READ |= {"runs", "--assignment", "--against", "--pairs", "--page", "--out of plan"}
"""Arguments that name files and folders which commands read."""
WRITTEN = {
    ("demo", "--out"),
    ("train", "--out"),
    ("explain", "--html"),
    ("receipt", "--snippet"),
    ("attribute", "--plot"),
    ("heads", "--plot"),
    ("heads", "--out"),
    ("look", "--out"),
    ("prune", "--out"),
    ("prune", "--plot"),
    ("share", "--out"),
    ("compare", "--out"),
    ("export", "--out"),
    ("import", "--out"),
    ("learn", "--out"),
    ("data", "--out"),
}
"""Command and option that names a file or folder to write."""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files, used only by this test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def left(folder: Path) -> list[str]:
    """Return the names of all files in a folder and its subfolders."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def path_arguments() -> Iterator[tuple[str, str, bool]]:
    """Yield command and name of each argument that is a path, and whether `main` locks it."""
    for command in COMMANDS:
        parser = Parser()
        command_module(command).add_arguments(parser)
        for each in parser._actions:
            if each.type in (Path, output_path):
                name = each.option_strings[0] if each.option_strings else each.dest
                yield command, name, each.type is output_path


def test_every_option_that_names_an_output_is_locked() -> None:
    """A new option with a path is added to `WRITTEN`, with `type=output_path`, or to `READ`."""
    found = list(path_arguments())
    assert {(command, name) for command, name, locked in found if locked} == WRITTEN
    others = {f"{name} of {command}" if name == "--out" else name for command, name, locked in found if not locked}
    assert others <= READ


def test_all_paths_to_an_output_share_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "file").symlink_to(tmp_path / "a" / "out")
    monkeypatch.chdir(tmp_path)
    with output_lock(Path("a/out")):
        for path in (tmp_path / "a/out", Path("link/out"), Path("a/../a/./out"), Path("file")):
            with pytest.raises(GlassError, match=f"another glass command is writing {path}"), output_lock(path):
                pass
        with output_lock(Path("a/out2")), output_lock(Path("not/yet/there")):
            pass
    with output_lock(Path("link/out")):
        pass


def test_the_lock_leaves_nothing_and_ends_with_a_killed_process(tmp_path: Path, temporary_folder: Path) -> None:
    with output_lock(tmp_path / "out"):
        assert left(temporary_folder)
        assert not list(tmp_path.glob(".*"))
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
    code = "import time; from glassformer.base.locks import output_lock; from pathlib import Path\n"
    code += "with output_lock(Path('out')): print('held', flush=True); time.sleep(60)"
    process = begin("-c", code, folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(GlassError, match="another glass command"), output_lock(tmp_path / "out"):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    with output_lock(tmp_path / "out"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


def test_an_output_is_written_where_no_lock_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with output_lock(tmp_path / "out"), atomic_file(tmp_path / "out") as temporary:
        temporary.write_text("new", encoding="utf-8")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "new"


def test_a_command_is_refused_at_once_while_another_one_writes_its_output(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("mine", encoding="utf-8")
    with output_lock(tmp_path / "page.html"):
        done = here("explain", "--html", "page.html", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "another glass command is writing page.html",
        "Wait until it has finished, or choose another --html.",
    ]
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "mine"


def test_only_the_first_process_of_torchrun_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with output_lock(tmp_path / "page.html"):
        assert here("explain", "--html", "page.html", folder=tmp_path).returncode == 0


@pytest.mark.parametrize("is_folder", [False, True])
def test_files_with_similar_names_are_kept(is_folder: bool, tmp_path: Path) -> None:
    names = [
        f"{dot}out{end}" for dot in ("", ".") for end in (".partial", ".old", ".tmp", ".lock", ".0123abcd.partial")
    ]
    for name in names:
        (tmp_path / name).mkdir()
        write_text(tmp_path / name / "mine.txt", "mine")
    for _ in range(2):
        if is_folder:
            files.write_folder(tmp_path / "out", lambda folder: write_text(folder / "a.txt", "a"))
        else:
            write_text(tmp_path / "out", "a")
    with pytest.raises(ZeroDivisionError):
        files.write_folder(tmp_path / "out2", lambda folder: write_text(folder / "a.txt", str(1 / 0)))
    with new_output(tmp_path / "out3") as temporary:
        temporary.mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "out", "out3", "temporary"])
    assert all((tmp_path / name / "mine.txt").read_text(encoding="utf-8") == "mine" for name in names)


def test_an_output_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def write_late(name: str, mine: Path) -> None:
        with new_output(tmp_path / name) as temporary:
            temporary.mkdir()
            mine.parent.mkdir(exist_ok=True)
            write_text(mine, "mine")

    for name, mine in (("folder", tmp_path / "folder" / "mine.txt"), ("file", tmp_path / "file")):
        with pytest.raises(GlassError, match=f"{name} already exists and is not overwritten"):
            write_late(name, mine)
    assert left(tmp_path) == ["file", "mine.txt"]


def test_an_empty_folder_and_a_link_to_one_receive_the_output(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    with new_output(tmp_path / "out") as temporary:
        temporary.mkdir()
        write_text(temporary / "a.txt", "a")
    assert (tmp_path / "out").is_symlink()
    assert left(tmp_path / "disk") == ["a.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no umask")
def test_outputs_have_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "a")
        with new_output(tmp_path / "folder") as temporary:
            temporary.mkdir()
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder")]
    assert modes == [0o640, 0o750]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes in folders")
@pytest.mark.parametrize("name", ["pipe", "/dev/null"])
def test_a_device_or_pipe_is_not_replaced(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = Path(tmp_path / name).stat().st_mode
    parsed = argparse.Namespace(out=output_path(str(tmp_path / name)))
    with pytest.raises(GlassError, match="is not a regular file"):
        files.refuse_no_file(parsed.out)
    assert Path(tmp_path / name).stat().st_mode == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not delete the current folder")
@pytest.mark.parametrize("words", [["export", "run", "--to", "hf"], ["train", "book.txt"]])
def test_a_relative_output_in_a_deleted_folder_is_refused_by_its_name(words: list[str], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "\n".join(
        [
            "import os, sys",
            f"os.rmdir({str(gone)!r})",
            "from glassformer.app.cli.main import main",
            f"sys.exit(main({[*words, '--out', 'x']!r}))",
        ]
    )
    done = ended(begin("-c", code, folder=gone))
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "cannot use x: No such file or directory")


def test_an_output_with_a_name_that_is_not_utf8_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = here("train", "stories", "--out", "h/\udcff", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["the path 'h/\\udcff' is not in UTF-8", "Choose another path."]
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
