"""With --nothing-missing, a test may not be skipped because of something that could be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest

def test_a_package():
    pytest.importorskip("no_such_package")

def test_a_browser():
    pytest.skip("there is no chromium on this machine: apt install chromium")

def test_real_text():
    pytest.skip("real text is not at /nowhere")

@pytest.mark.skipif(True, reason="this system has no named pipes")
def test_the_system():
    pass
"""


def run(folder: Path, *options: str) -> str:
    """Return the last line that pytest prints for a small suite beside a copy of the project's conftest."""
    (folder / "conftest.py").write_bytes((ROOT / "tests" / "conftest.py").read_bytes())
    (folder / "test_all.py").write_text(SUITE, encoding="utf-8")
    (folder / "test_module.py").write_text('import pytest\npytest.importorskip("no_such_package")\n', encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(folder), *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1]


@pytest.mark.thorough
def test_skips_for_missing_packages_fail(tmp_path: Path) -> None:
    options = ["--continue-on-collection-errors"]
    assert "5 skipped" in run(tmp_path, *options, "-n", "0")
    strict = run(tmp_path, *options, "-n", "2", "--nothing-missing")
    assert "2 failed" in strict
    assert "2 skipped" in strict
    assert "1 error" in strict
