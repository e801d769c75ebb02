"""Imports go in one direction, importing does no work, and `glass --help` imports little."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import glassformer
import glassformer_course

SOURCE = Path(glassformer.__file__).parent
COURSE = Path(glassformer_course.__file__).parent
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("model", "corpora"),
    ("text",),
    ("generation",),
    ("backends",),
    ("tasks",),
    ("runs",),
    ("training",),
    ("inspection",),
    ("evaluation",),
    ("interop",),
    ("launch",),
    ("verification", "experiments"),
    ("api",),
    ("app",),
)
"""The packages in layers, the lowest first: a package imports only from lower layers, not from packages in its own
layer. `api` is a single module, the public Python API.
"""
ALONE = "numpy_reference"
"""A second implementation, which imports only the type of the settings, from `base`."""
COMPARED = ("verification", "app")
"""The packages that may import `ALONE`, to compare their results with it."""
TOP_MODULES = ("__init__.py", "__main__.py")
"""Modules directly in `glassformer`, which forward to `api` or `app`."""


HEAVY = ("'torch'", "'numpy'", "'pydantic'", "'tokenizers'", "'rich'")
"""Packages that take long to import, written as in a printed list of `sys.modules`."""


def packages_below(package: str) -> set[str]:
    """Return the packages that a package may import from, besides itself."""
    for number, layer in enumerate(LAYERS):
        if package in layer:
            below = {each for lower in LAYERS[:number] for each in lower}
            return below | {ALONE} if package in COMPARED else below
    return {"base"} if package == ALONE else set()


def imports_of(path: Path) -> set[str]:
    """Return the packages that a file imports from, including imports inside functions and for type checkers."""
    packages: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glassformer."):
            packages.add(str(node.module).split(".")[1])
        if isinstance(node, ast.ImportFrom) and node.module == "glassformer":
            packages |= {alias.name for alias in node.names if (SOURCE / alias.name).exists()}
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("glassformer.")}
    return packages


def names_course(code: str) -> bool:
    """Return whether code imports from the course, or has its name in a string."""
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


def test_every_package_has_a_layer() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages | {"api"} == {package for layer in LAYERS for package in layer} | {ALONE}
    assert {path.name for path in SOURCE.glob("*.py")} == {"api.py", *TOP_MODULES}


def test_every_package_has_a_docstring() -> None:
    for path in SOURCE.glob("*/__init__.py"):
        explained = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert len(explained) > 100, f"{path} does not say what is in it"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_only_to_lower_layers(path: Path) -> None:
    inside = path.relative_to(SOURCE)
    if inside.name in TOP_MODULES and inside.parent == Path():
        return
    package = inside.parts[0].removesuffix(".py")
    assert imports_of(path) <= packages_below(package) | {package}


@pytest.mark.parametrize("path", sorted(COURSE.rglob("*.py")), ids=lambda path: str(path.relative_to(COURSE)))
def test_the_course_imports_the_library(path: Path) -> None:
    assert "app" not in imports_of(path)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_library_never_names_the_course(path: Path) -> None:
    """The library finds the course by an entry point, without an import or a module name in a string."""
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


def test_no_circle_of_files_imports_itself() -> None:
    """Imports inside functions and for type checkers count too."""
    files = {module_name(path): path for source in (SOURCE, COURSE) for path in source.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names if alias.name in files}
            if isinstance(node, ast.ImportFrom):
                modules = (f"{node.module}.{alias.name}" for alias in node.names)
                graph[name] |= {module if module in files else str(node.module) for module in modules} & files.keys()
    TopologicalSorter(graph).prepare()  # raises a CycleError that lists a circle


def module_name(path: Path) -> str:
    """Return the name by which a file is imported."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_generation_does_not_import_text() -> None:
    for path in (SOURCE / "generation").glob("*.py"):
        assert "tokenizer" not in path.read_text(encoding="utf-8").lower()


def test_every_module_can_be_imported() -> None:
    for package in (glassformer, glassformer_course):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from glassformer.app.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = shown.splitlines()[-1]
    for heavy in HEAVY:
        assert heavy not in loaded


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys; import glassformer as gf; dir(gf); gf.GlassError; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in HEAVY:
        assert heavy not in loaded


def test_settings_and_recipes_need_no_torch() -> None:
    code = "import sys; import glassformer.app.cli.train, glassformer.app.cli.count; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


def test_evaluation_does_not_load_the_compiler() -> None:
    code = (
        "import sys; import glassformer.tasks.losses, glassformer.launch.start; print('torch._dynamo' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"
