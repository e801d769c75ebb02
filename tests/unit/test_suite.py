"""The quick suite, which `pytest` runs by default, imports every package of the library."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src" / "glassformer"
MODULES = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
"""The modules directly in `glassformer`, except `__init__` and `__main__`."""
ROOMS = sorted({path.parent.name for path in SOURCE.glob("*/__init__.py")} | MODULES)


@cache
def quick_modules() -> tuple[ast.Module, ...]:
    """Return the parsed test modules in which a test is not marked thorough."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("test_*.py"))]
    return tuple(tree for tree in trees if has_quick_test(tree))


def has_quick_test(tree: ast.Module) -> bool:
    """Return whether a module has a test that neither its decorators nor the module mark as thorough."""
    statements = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    if any(each.startswith("pytestmark") and "mark.thorough" in each for each in statements):
        return False
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return any("mark.thorough" not in ast.unparse(test.decorator_list) for test in tests)


def imported(tree: ast.Module) -> set[str]:
    """Return the dotted names of all modules and objects that a module imports, including imports inside functions."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return names


@pytest.mark.parametrize("wanted", [*(f"glassformer.{room}" for room in ROOMS), "glassformer_course"])
def test_the_quick_suite_imports_every_package(wanted: str) -> None:
    assert any(
        name == wanted or name.startswith(f"{wanted}.") for tree in quick_modules() for name in imported(tree)
    ), f"no quick test imports {wanted}: leave one of its tests unmarked"


def test_tests_that_share_a_list_have_the_same_marker() -> None:
    """`pytest -m thorough` skips the quick tests, so thorough tests may read only results of thorough tests."""
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        sharing = [node for node in functions if "scripts" in {argument.arg for argument in node.args.args}]
        marked = {node.name: "mark.thorough" in ast.unparse(node.decorator_list) for node in sharing}
        assert len(set(marked.values())) <= 1, f"{path}: {marked}"


def test_no_module_defines_its_marks_twice() -> None:
    """A second `pytestmark` in a module would replace the first."""
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        statements = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
        assert sum(each.startswith("pytestmark =") for each in statements) <= 1, path
