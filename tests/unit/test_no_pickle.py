"""Nothing in the library or the course reads or writes a pickle, because an untrusted file must never run code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import glassformer
import glassformer_course

PACKAGES = [Path(str(package.__file__)).parent for package in (glassformer, glassformer_course)]
UNSAFE = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
"""Modules whose loading functions can run code."""


def uses(code: str) -> Iterator[str]:
    """Yield each line of code that names an unsafe module or loads objects."""
    for node in ast.walk(ast.parse(code)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").partition(".")[0]]
        elif isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Call):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            called = ast.unparse(node.func)
            if called == "torch.load" and given.get("weights_only") != "True":
                names = ["torch.load without weights_only=True"]
            elif given.get("allow_pickle", "False") != "False":
                names = [f"{called} with allow_pickle"]
            elif called == "np.load" and "allow_pickle" not in given:
                names = ["np.load without allow_pickle=False"]
        for name in names:
            if name in UNSAFE or " with" in name:
                yield f"line {getattr(node, 'lineno', 0)}: {name}"


def test_the_packages_use_no_pickle() -> None:
    files = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    found = {str(path): list(uses(path.read_text(encoding="utf-8"))) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_every_use_of_pickle_would_be_found() -> None:
    lines = [
        "import pickle",
        "from dill import loads",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
    ]
    for line in lines:
        assert list(uses(line)), line
    for line in ("torch.load(file, weights_only=True)", "np.load(file, allow_pickle=False)", '"a pickle"'):
        assert not list(uses(line)), line
