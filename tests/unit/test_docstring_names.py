"""The sections `Args` and `Attributes` of a docstring name parameters and fields that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import glassformer
import glassformer_course

ENTRY = re.compile(r"    (\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): ")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def documented(node: Definition, section: str) -> list[str]:
    """Return the names of the entries of a section in a docstring."""
    match = re.search(rf"^{section}:\n((?:    .*\n?|\n)+)", ast.get_docstring(node) or "", re.MULTILINE)
    lines = [] if match is None else match[1].split("\n")
    entries = [entry[1] for line in lines if (entry := ENTRY.match(line))]
    return [name.strip(" *") for entry in entries for name in entry.split(",")]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of all parameters of a function."""
    given = function.args
    single = [each for each in (given.vararg, given.kwarg) if each is not None]
    return {each.arg for each in [*given.posonlyargs, *given.args, *given.kwonlyargs, *single]}


def members(node: ast.ClassDef) -> set[str]:
    """Return the names of the fields, attributes, properties and methods of a class."""
    names = set()
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef):
            names.add(each.name)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            names.add(each.target.id)
        elif isinstance(each, ast.Assign):
            names |= {target.id for target in each.targets if isinstance(target, ast.Name)}
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            names.add(each.attr)
    return names


def arguments(node: Definition) -> set[str] | None:
    """Return the names of the arguments of a function or a class; None if a base class defines them."""
    if not isinstance(node, ast.ClassDef):
        return parameters(node)
    own = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name in ("__init__", "__call__")]
    if own:
        return set.union(*(parameters(each) for each in own))
    fields = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return fields or None


def wrong_names(path: Path) -> list[str]:
    """Return the documented names of a file that do not exist."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, Definition):
            continue
        known = arguments(node)
        if known is not None:
            found += [
                f"{path.name}: {node.name}: Args: {name}" for name in documented(node, "Args") if name not in known
            ]
        if isinstance(node, ast.ClassDef):
            fields = members(node)
            names = documented(node, "Attributes")
            found += [f"{path.name}: {node.name}: Attributes: {name}" for name in names if name not in fields]
    return found


def test_documented_parameters_and_fields_exist() -> None:
    packages = [Path(str(package.__file__)).parent for package in (glassformer, glassformer_course)]
    paths = [path for folder in packages for path in sorted(folder.rglob("*.py"))]
    assert len(paths) > 500
    assert [wrong for path in paths for wrong in wrong_names(path)] == []


def test_a_name_that_does_not_exist_is_found(tmp_path: Path) -> None:
    source = 'class A:\n    """A.\n\n    Attributes:\n        x, y: numbers.\n    """\n\n    x: int\n'
    source += '\n\ndef f(x, *rest):\n    """F.\n\n    Args:\n        z: a number.\n        rest: numbers.\n    """\n'
    path = tmp_path / "a.py"
    path.write_text(source, encoding="utf-8")
    assert wrong_names(path) == ["a.py: A: Attributes: y", "a.py: f: Args: z"]
