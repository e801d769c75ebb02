"""The code on the scikit-learn page runs as printed, with fewer epochs."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.thorough

pytest.importorskip("sklearn")

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"
EPOCHS = re.compile(r"epochs=\d+")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(EPOCHS.sub("epochs=0.5", block), f"block {number + 1} of {PAGE.name}", "exec"), names)
        assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [tmp_path / "topics-classifier"]
    assert tempfile.gettempdir() != str(tmp_path)


def test_the_page_names_all_estimators() -> None:
    from glassformer.interop import sklearn

    for name in sklearn.__all__:
        assert name == "RefusedError" or name in PAGE.read_text(encoding="utf-8")
