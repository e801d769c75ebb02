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

SOURCE = Path(glassformer.__file__).parent
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
    "learn": {
        "errors",
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
    },
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


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ("cli", "__main__", "__init__"):
        return
    assert imports_of(path) <= MAY_IMPORT[room] | {room, "wording"}


def test_generation_never_sees_text() -> None:
    for path in (SOURCE / "generation").glob("*.py"):
        assert "tokenizer" not in path.read_text(encoding="utf-8").lower()


def test_every_module_can_be_imported() -> None:
    for module in pkgutil.walk_packages(glassformer.__path__, "glassformer."):
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
