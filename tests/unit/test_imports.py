"""Imports go one way, happen without work, and `glass --help` needs almost none of them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer
import glassformer_course

SOURCE = Path(glassformer.__file__).parent
COURSE = Path(glassformer_course.__file__).parent
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "shapes": set(),
    "wording": set(),
    "files": {"errors"},
    "lock": {"errors", "files"},
    "settings": {"errors"},
    "config": {"errors", "settings"},
    "recipes": {"errors"},
    "runs": {"errors", "files", "config"},
    "tokenizers": {"errors", "files", "config"},
    "data": {"errors", "files", "config", "tokenizers"},
    "model": {"errors", "files", "config"},
    "generation": {"errors", "config", "model"},
    "text_model": {"errors", "config", "runs", "tokenizers", "model", "generation"},
    "training": {"errors", "files", "lock", "config", "runs", "tokenizers", "data", "model", "text_model"},
    "evaluation": {
        "errors",
        "config",
        "runs",
        "tokenizers",
        "data",
        "model",
        "generation",
        "text_model",
        "training",
        "inspection",
    },
    "reference": set(),
    "inspection": {"errors", "files", "config", "runs", "tokenizers", "data", "model", "generation", "text_model"},
    "interop": {
        "errors",
        "files",
        "config",
        "runs",
        "recipes",
        "tokenizers",
        "data",
        "model",
        "generation",
        "text_model",
        "training",
        "evaluation",
    },
    "experiments": {
        "errors",
        "files",
        "lock",
        "settings",
        "config",
        "runs",
        "recipes",
        "tokenizers",
        "data",
        "model",
        "generation",
        "text_model",
        "training",
        "evaluation",
        "reference",
        "inspection",
        "interop",
        "verification",
    },
    "pruning": {
        "errors",
        "files",
        "lock",
        "config",
        "runs",
        "data",
        "model",
        "text_model",
        "training",
        "inspection",
    },
    "verification": {
        "errors",
        "files",
        "settings",
        "config",
        "runs",
        "recipes",
        "tokenizers",
        "data",
        "model",
        "generation",
        "text_model",
        "training",
        "evaluation",
        "reference",
        "inspection",
        "interop",
    },
    "course": {"errors"},
    "learn": {"course"},
    "serve": {
        "errors",
        "files",
        "lock",
        "config",
        "runs",
        "tokenizers",
        "data",
        "model",
        "generation",
        "text_model",
        "training",
        "evaluation",
        "reference",
        "inspection",
        "interop",
        "pruning",
        "verification",
        "experiments",
    },
    "sharing": {"errors", "files", "config", "runs", "tokenizers", "model", "generation", "text_model", "serve"},
}
"""Room -> rooms it may import from, besides itself and `wording`. `cli` stands above all of them."""
COURSE_MAY_IMPORT = {
    "errors",
    "wording",
    "files",
    "config",
    "runs",
    "recipes",
    "tokenizers",
    "data",
    "model",
    "text_model",
    "generation",
    "training",
    "evaluation",
    "reference",
    "inspection",
}
"""Rooms of the library that the course may import from."""


def imports_of(path: Path) -> set[str]:
    """The rooms that a file imports from, also inside functions and for type checkers."""
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glassformer."):
            rooms.add(str(node.module).split(".")[1])
        if isinstance(node, ast.ImportFrom) and node.module == "glassformer":
            rooms |= {alias.name for alias in node.names if (SOURCE / alias.name).exists()}
        if isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("glassformer.")}
    return rooms


def names_course(code: str) -> bool:
    """Whether code imports from the course, or has its name in a text."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                names = [node.module or ""]
            case ast.Constant(value=str() as text):
                names = [text]
            case _:
                names = []
        if any(COURSE.name in name for name in names):
            return True
    return False


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ("cli", "__main__", "__init__"):
        return
    assert imports_of(path) <= MAY_IMPORT[room] | {room, "wording"}


@pytest.mark.parametrize("path", sorted(COURSE.rglob("*.py")), ids=lambda path: str(path.relative_to(COURSE)))
def test_the_course_imports_the_library(path: Path) -> None:
    assert imports_of(path) <= COURSE_MAY_IMPORT


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_library_never_names_the_course(path: Path) -> None:
    """It finds the course by an entry point: no import, and no name to import from, as a text."""
    assert not names_course(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "code",
    [
        "import glassformer_course.lab",
        "def late():\n    from glassformer_course import check",
        "import_module('glassformer_course')",
        "import_module(f'glassformer_course.exercises.{name}')",
    ],
)
def test_every_way_to_name_the_course_would_be_found(code: str) -> None:
    assert names_course(code)


def test_generation_never_sees_text() -> None:
    for path in (SOURCE / "generation").glob("*.py"):
        assert "tokenizer" not in path.read_text(encoding="utf-8").lower()


def test_every_module_can_be_imported() -> None:
    for package in (glassformer, glassformer_course):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from glassformer.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = shown.splitlines()[-1]
    for heavy in ("'torch'", "'numpy'", "'pydantic'", "'tokenizers'", "'rich'"):
        assert heavy not in loaded


def test_settings_and_recipes_need_no_torch() -> None:
    code = "import sys; import glassformer.cli.train, glassformer.cli.count; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"
