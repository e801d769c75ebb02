"""Find the test modules nearest to a module of the library or the course, by imports."""

from __future__ import annotations

import ast
import re
from collections import deque
from pathlib import Path

KINDS = ("unit", "property", "parity", "golden", "journey", "browser")
"""Folders of tests, the cheapest first."""
OWN = ("glassformer.", "glassformer_course.")
"""Prefixes of module names in the project's packages."""


class ImportGraph:
    """Graph of the imports between the modules of a tree: library, course and tests.

    `from package import submodule` counts as an import of the submodule; every other import counts for the named
    module. Module names in strings, and prefixes of module names in f-strings, count as imports, because commands,
    exercises and exporters are loaded by name. A test module also imports the `conftest.py` of its folder and of the
    folders above it.

    Args:
        tree: the folder with `src` and `tests`.
    """

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.paths = {
            dotted_name(path.relative_to(top)): path
            for top, part in ((tree / "src", "glassformer"), (tree / "src", "glassformer_course"), (tree, "tests"))
            for path in sorted((top / part).rglob("*.py"))
        }
        self.imports = {name: self._imports_of(name) for name in self.paths}

    def nearest_tests(self, path: str) -> list[str]:
        """Return the paths, relative to the tree, of the test modules that reach a file, nearest first.

        Test modules of the campaigns are excluded.
        """
        file = Path(path)
        parts = file if file.suffix == ".py" else file.parent / "__init__.py"
        target = dotted_name(parts.relative_to("src"))
        word = re.compile(rf"\b{re.escape(file.stem.rstrip('_'))}\b")
        found = []
        for name, test in self.paths.items():
            if not test.name.startswith("test_") or name.startswith("tests.campaigns."):
                continue
            distance = self._distances(name).get(target)
            if distance is not None:
                kind = KINDS.index(name.split(".")[1]) if name.split(".")[1] in KINDS else len(KINDS)
                mentions = len(word.findall(test.read_text(encoding="utf-8")))
                found.append((distance, kind, -mentions, str(test.relative_to(self.tree))))
        return [test for *_, test in sorted(found)]

    def _distances(self, start: str) -> dict[str, int]:
        """Return the number of imports on the shortest path from a module to every module that it reaches."""
        distances = {start: 0}
        waiting = deque([start])
        while waiting:
            name = waiting.popleft()
            for other in self.imports[name]:
                if other not in distances:
                    distances[other] = distances[name] + 1
                    waiting.append(other)
        return distances

    def _imports_of(self, name: str) -> list[str]:
        found = set[str]()
        for node in ast.walk(ast.parse(self.paths[name].read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    found.update(alias.name for alias in node.names)
                case ast.ImportFrom(level=0):
                    for alias in node.names:
                        submodule = f"{node.module}.{alias.name}"
                        found.add(submodule if submodule in self.paths else str(node.module))
                case ast.Constant(value=str() as text):
                    found.add(text)
                case ast.JoinedStr(values=[ast.Constant(value=str() as prefix), *_]) if prefix.startswith(OWN):
                    found.update(other for other in self.paths if other.startswith(prefix))
        if name.startswith("tests."):
            parts = name.split(".")[:-1]
            found.update(".".join([*parts[:count], "conftest"]) for count in range(1, len(parts) + 1))
        return sorted((found & self.paths.keys()) - {name})


def dotted_name(path: Path) -> str:
    """Return the name under which a file is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
