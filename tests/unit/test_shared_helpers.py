"""Tests share helper modules, but never import each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
EMBEDDED = re.compile(r"^\s*(?:from|import)\s.*\btest_\w+", re.MULTILINE)
"""Pattern of an import line, even in the text of a program that a test runs in another process."""


def imported_modules(source: str) -> list[str]:
    """Return the dotted name of everything that a module imports, at any depth."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module or ''}.{alias.name}" for alias in node.names]
    return names


def imported_tests(source: str) -> list[str]:
    """Return the imports of `test_*` modules, and of names from them, that a module contains."""
    statements = [name for name in imported_modules(source) if re.search(r"(^|\.)test_", name)]
    return [*statements, *EMBEDDED.findall(source)]


def test_no_module_imports_a_test_module() -> None:
    found = {str(path): imported_tests(path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py")}
    wrong = {path: names for path, names in found.items() if names}
    assert not wrong, "move shared code to a helper module beside the tests"


@pytest.mark.parametrize(
    "source",
    [
        "from tests.unit.test_tape import check",
        "import tests.unit.test_tape as tape",
        "from tests.unit import (\n    example_files,\n    test_tape,\n)",
        "def late():\n    from .test_tape import check",
        'PROGRAM = """\nimport sys\nfrom test_tape import check\n"""',
    ],
)
def test_every_form_of_import_is_found(source: str) -> None:
    assert imported_tests(source)


def test_helpers_may_be_imported() -> None:
    assert not imported_tests("from tests.unit.example_files import lines\nfrom x import shuffle_test\n")
