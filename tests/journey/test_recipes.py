"""Every recipe except `tutorial-d7` trains for two steps, on a small text if the recipe names no corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.app.cli.main import main
from glassformer.base.recipes import load_recipe, recipe_names
from glassformer.corpora import CORPORA
from tests.property.trainers import LINES

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", [name for name in recipe_names() if name != "tutorial-d7"])
def test_every_recipe_trains_for_two_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n\n".join(f"{LINES[i % 6]} {i} {LINES[(i * i) % 6]}" for i in range(150))
    Path("book.txt").write_text(text, encoding="utf-8")
    own = load_recipe(name).settings.get("data", {}).get("source") in CORPORA
    words = ["train", *([] if own else ["book.txt"]), "--recipe", name, "--out", "run", "--steps", "2", "--json"]
    changes = ["train.batch=2", "train.threads=1", "train.evaluate_tokens=500", "sample.tokens=2", "data.size=300"]
    if name == "bangla-slm":
        changes.append("tokenizer.vocab_size=320")  # as many as so small a text has
    if "translate" in name:
        changes += ["train.batch_tokens=90", "tokenizer.vocab_size=400"]
    assert main([*words, *(part for change in changes for part in ("--set", change))]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["steps_done"] == 2
    assert facts["loss"] > 0


def test_a_translation_recipe_needs_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "stories", "--recipe", "tutorial-d7"]) == 2
    assert "the corpus stories does not support train.task = translate" in capsys.readouterr().err
    assert not Path("runs").exists()
