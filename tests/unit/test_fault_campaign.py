"""The fault campaign makes the expected mutations, runs the expected tests, and detects a weaker suite."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests.campaigns.faults import main
from tests.campaigns.mutations import faults_of, python_faults, toml_faults
from tests.campaigns.reaching import ImportGraph

SOURCE = '''"""A module."""

COUNT = 3


def total(values: list[int], most: int = 5) -> int:
    """Return a sum."""
    if not values:
        return 0
    found = sum(values)
    print(f"{found + 1}")
    return found - 1 if found > most and values else found
'''
CHANGED = {
    "    if values:",
    "    if not (not values):",
    "        return 1",
    "    return",
    "    pass",
    "    return (found + 1) if found > most and values else found",
    "    return found - 2 if found > most and values else found",
    "    return found - 1 if found <= most and values else found",
    "    return found - 1 if (found > most or values) else found",
    "    return found - 1 if not (found > most and values) else found",
}
STRONG = """
from glassformer.sums import larger


def test_larger():
    assert larger(2, 3) == 3
    assert larger(5, 4) == 5
"""
WEAK = """
from glassformer.sums import larger


def test_of_another_machine():
    assert False


def test_larger():
    larger(2, 3)
"""
ELSEWHERE = WEAK + "    assert larger(2, 3) == 3 and larger(5, 4) == 5\n"
THOROUGH = STRONG.replace("def test", "import pytest\n\n\n@pytest.mark.thorough\ndef test")
SUMS = "def larger(a, b):\n    return a if a > b else b\n"


def test_every_kind_of_change_is_made_only_in_functions() -> None:
    lines = SOURCE.split("\n")
    found = list(python_faults("a.py", lines))
    assert {fault.new for fault in found} == CHANGED
    for fault in found:
        assert lines[fault.line - 1] == fault.old
        changed = [*lines[: fault.line - 1], fault.new, *lines[fault.line :]]
        assert ast.dump(ast.parse("\n".join(changed))) != ast.dump(ast.parse(SOURCE))


def test_numbers_of_a_recipe_are_changed() -> None:
    lines = ["[train]", "steps = 2000", "learning_rate = 1e-3  # high", 'task = "lm"', "betas = [0.9, 0.99]"]
    assert [fault.new for fault in toml_faults("a.toml", lines)] == ["steps = 2001", "learning_rate = 0.002  # high"]


def test_lines_that_are_not_unique_in_both_trees_are_not_changed(tmp_path: Path) -> None:
    texts = ("a = 1\nb = 2\nc = 3\nc = 3\n", "b = 2\na = 1\nc = 3\nd = 4\n")
    for name, text in zip(("one", "two"), texts, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.toml").write_text(text, encoding="utf-8")
    faults = faults_of("a.toml", tmp_path / "one", tmp_path / "two")
    assert [fault.old for fault in faults] == ["a = 1", "b = 2"]
    faults[1].write(tmp_path / "two")
    assert (tmp_path / "two" / "a.toml").read_text(encoding="utf-8") == "b = 3\na = 1\nc = 3\nd = 4\n"
    (tmp_path / "two" / "b.toml").write_text("a = 1\n", encoding="utf-8")
    assert faults_of("b.toml", tmp_path / "one", tmp_path / "two") == []
    assert faults_of("b.toml", tmp_path / "two", tmp_path / "one") == []


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    files = {
        "src/glassformer/__init__.py": "",
        "src/glassformer/main.py": 'def run(name):\n    import_module(f"glassformer.commands.{name}")\n',
        "src/glassformer/commands/__init__.py": "",
        "src/glassformer/commands/count.py": "from glassformer import sums\n",
        "src/glassformer/sums.py": "",
        "src/glassformer_course/__init__.py": "",
        "src/glassformer_course/find.py": 'def find(name):\n    import_module(f"glassformer_course.tasks.{name}")\n',
        "src/glassformer_course/tasks/adding.py": "from glassformer import sums\n",
        "tests/__init__.py": "",
        "tests/helper.py": "import glassformer.main\n",
        "tests/unit/test_a.py": "from tests import helper\n",
        "tests/unit/test_b.py": "def late():\n    from glassformer.sums import total\n",
        "tests/journey/conftest.py": "from glassformer.main import run\n",
        "tests/journey/test_c.py": "",
        "tests/journey/test_d.py": "run('count')\n",
        "tests/unit/test_e.py": "import json\n",
        "tests/unit/test_f.py": "from glassformer_course.find import find\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    graph = ImportGraph(tmp_path)
    unit = ["tests/unit/test_b.py", "tests/unit/test_a.py"]
    journey = ["tests/journey/test_c.py", "tests/journey/test_d.py"]
    course = "tests/unit/test_f.py"
    assert graph.nearest_tests("src/glassformer_course/tasks/adding.py") == [course]
    assert graph.nearest_tests("src/glassformer/sums.py") == [unit[0], course, unit[1], *journey]
    assert graph.nearest_tests("src/glassformer/commands/count.py") == [unit[1], *reversed(journey)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a checkout with one module and a tag for each suite: strong, weak, elsewhere and thorough."""
    (tmp_path / "src/glassformer/sums").mkdir(parents=True)
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "src/glassformer/__init__.py").touch()
    (tmp_path / "src/glassformer/sums/__init__.py").write_text(SUMS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = thorough\naddopts = -n 2\n", encoding="utf-8")
    git(tmp_path, "init", "-q")
    for name, text in (("strong", STRONG), ("weak", WEAK), ("elsewhere", ELSEWHERE), ("thorough", THOROUGH)):
        path = tmp_path / "tests/unit/test_sums.py"
        path.write_text(text.replace("test_larger", "test_new") if name == "elsewhere" else text, encoding="utf-8")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", name)
        git(tmp_path, "tag", name)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    """Run git in a folder with an anonymous identity."""
    who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("now", "code", "said"),
    [
        ("thorough", 0, "`tests/unit/test_sums.py::test_larger` (thorough) |"),
        ("elsewhere", 0, "`tests/unit/test_sums.py::test_new` (quick) |"),
        ("weak", 1, "## Noticed before and not now"),
    ],
)
def test_a_weaker_suite_is_detected(project: Path, now: str, code: int, said: str, tmp_path: Path) -> None:
    out = tmp_path / "faults.md"
    words = ["--before", "strong", "--now", now, "--out", str(out), "--rooms", "sums", "--limit", "60"]
    assert main(words, project) == code
    assert said in out.read_text(encoding="utf-8")
    assert (project / "src/glassformer/sums/__init__.py").read_text(encoding="utf-8") == SUMS


def test_bad_arguments_are_refused_in_two_lines(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--before", "nowhere"], project)
    assert capfd.readouterr().err == f"unknown revision 'nowhere'\nGive a commit, tag or branch of {project}.\n"
    assert main(["--before", "strong", "--rooms", "sums,differences"], project) == 2
    assert capfd.readouterr().err == "unknown room 'differences'\nChoose from: sums.\n"
