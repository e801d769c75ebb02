"""The course is a separate package, which the library finds by its entry points."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import glassformer_course
from glassformer.app.cli.main import COMMANDS, COURSE, command_module, main
from glassformer.app.course import GROUP, course_module
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from tests.journey.pages import ROOT

INSTALL = f"Reinstall glassformer, which includes the course: {install_command()}"
OTHER_COURSE = '''"""Another course."""

def add_arguments(parser):
    parser.add_argument("word", metavar="WORD")


def run(arguments):
    print("learnt", arguments.word)
    return 3
'''


def declare(folder: Path, **entries: str) -> None:
    """Write the files that pip writes for a package that declares modules of a course."""
    info = folder / "another_course-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: another-course\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{GROUP}]", *(f"{name} = {module}" for name, module in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_the_installed_entry_points_are_those_of_this_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    assert installed == project["entry-points"][GROUP], "install the project again: pip install --no-deps -e ."


def test_the_wheel_has_every_package() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    packages = sorted(f"src/{path.parent.name}" for path in (ROOT / "src").glob("*/__init__.py"))
    assert packages == ["src/glassformer", "src/glassformer_course"]
    assert build["targets"]["wheel"]["packages"] == packages


def test_the_library_finds_the_course() -> None:
    assert command_module(COURSE).__name__ == "glassformer_course.commands.learn"
    assert course_module("notebook") is glassformer_course


def test_another_package_that_declares_the_command_is_run_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(tmp_path, command="another_course")
    (tmp_path / "another_course.py").write_text(OTHER_COURSE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["learn", "Bangla"]) == 3
    assert capsys.readouterr().out == "learnt Bangla\n"


def test_a_declared_package_that_is_missing_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, command="absent_course.command", notebook="broken_course")
    (tmp_path / "broken_course.py").write_text("import no_such_dependency\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(GlassError) as caught:
        course_module("command")
    assert str(caught.value) == f"the course is not installed: there is no package absent_course\n{INSTALL}"
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):  # another package is missing
        course_module("notebook")


@pytest.mark.parametrize("words", [["learn", "list"], ["learn", "--help"]])
def test_without_the_course_the_command_says_so_in_two_lines(words: list[str]) -> None:
    """Without site-packages, no package declares anything; `glass --help` still lists all commands."""
    source = ROOT / "src"
    code = f"import sys; sys.path.insert(0, {str(source)!r}); from glassformer.app.cli.main import main; "
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}sys.exit(main({words!r}))"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == f"the course is not installed: no package declares {GROUP}\n{INSTALL}\n"
    shown = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}main(['--help'])"], capture_output=True, text=True, check=True
    )
    assert all(f"glass {name} " in shown.stdout for name in COMMANDS)
