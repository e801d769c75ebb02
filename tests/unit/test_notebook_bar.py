"""In a notebook, `fit(progress=True)` shows a progress bar that it updates in place, and prints notes."""

from __future__ import annotations

from pathlib import Path

import pytest

CELL = """import glassformer as gf
gf.fit("book.txt", steps=4, out="run", progress=True,
       settings={"model.layers": 1, "model.width": 16, "model.heads": 2, "model.context": 16, "train.log_every": 1})
"""


@pytest.mark.thorough
def test_a_notebook_shows_one_bar(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    (tmp_path / "book.txt").write_text("It was a day when the cat met the dog.\n" * 50)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = notebook.cells[0].outputs
    bars = [each.data["text/html"] for each in outputs if each.output_type == "display_data"]
    assert len(bars) == 1
    assert 'value="1.0000" max="1"' in bars[0]
    assert "step 4  loss" in bars[0]
    printed = "".join(each.text for each in outputs if each.output_type == "stream")
    assert "validation" in printed
    assert "step      4  loss" not in printed  # the line that the bar replaces
