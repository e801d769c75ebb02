"""The advice for a package that is not installed fits the way in which glassformer is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import glassformer
from glassformer.base import packages
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command, require_packages

ROOT = Path(__file__).parents[2]


def test_in_a_checkout_the_advice_names_the_checkout_and_its_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "__file__", str(ROOT / "src" / "glassformer" / "base" / "packages.py"))
    assert install_command("tok") == f'pip install -c "{ROOT}/constraints.txt" -e "{ROOT}[tok]"'
    assert install_command() == f'pip install -c "{ROOT}/constraints.txt" -e "{ROOT}"'


def test_for_an_installed_wheel_the_advice_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    monkeypatch.setattr(packages, "__file__", str(site / "glassformer" / "base" / "packages.py"))
    with pytest.raises(GlassError) as refused:
        require_packages("reading it", "no_such_package", extra="tok")
    assert str(refused.value) == 'reading it needs the package no_such_package\npip install "glassformer[tok]"'


def test_the_citation_names_this_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {glassformer.__version__}" in lines


@pytest.mark.parametrize("arguments", [["explain"], ["learn", "lab", "open", "3"], ["count", "demo"]])
def test_a_command_without_torch_says_what_to_install(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from glassformer.app.cli.main import main; sys.exit(main({arguments}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "the package torch is not installed",
        f"Install glassformer with the packages that it needs: {install_command()}",
    ]


ONLY = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        own = name.startswith("_sysconfigdata") or name.partition(".")[0] in sys.stdlib_module_names
        if not own and name.partition(".")[0] not in ALLOWED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
from glassformer.app.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_course_without_torch_needs_only_the_packages_that_its_page_names(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "learn.md").read_text(encoding="utf-8")
    (named,) = [line.split()[2:] for line in page.splitlines() if line.startswith("pip install numpy")]
    requirements = {"markdown_it", "mdurl", "pygments"}  # of rich
    requirements |= {"annotated_types", "pydantic_core", "typing_extensions", "typing_inspection"}  # of pydantic
    allowed = {*(name.replace("-", "_") for name in named), *requirements, "glassformer", "glassformer_course"}
    for words in ("list", "start 2", "check 2", "progress"):  # the answer to check is not written yet
        done = subprocess.run(
            [sys.executable, "-c", f"ALLOWED = {allowed}{ONLY}", "learn", *words.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "is not installed" not in done.stderr, (words, done.stderr)
        assert done.returncode == (2 if words == "check 2" else 0), (words, done.stdout, done.stderr)
