"""No recipe multiplies in bfloat16 on a processor on which bfloat16 is slow; they use bfloat16 where it is fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.app.cli.main import main
from glassformer.base.config import Config
from glassformer.base.recipes import load_recipe, recipe_names
from glassformer.corpora import CORPORA
from glassformer.model.precision import Speeds, cache_speeds
from tests.products import BfloatProducts
from tests.property.trainers import LINES

SMALLER = [
    "train.batch=2",
    "train.threads=1",
    "train.evaluate_tokens=200",
    "sample.tokens=2",
    "data.size=300",
    "model.layers=1",
    "model.context=32",
]
PAIRS = ["train.batch_tokens=90", "tokenizer.vocab_size=400"]
CHANGES = {
    "auto-translate": PAIRS,
    "bangla-slm": ["model.width=64", "tokenizer.vocab_size=320"],
    "translate-modern": PAIRS,
    "translate-original": PAIRS,
    "translate-t5": PAIRS,
    "tutorial-d7": ["model.width=64", "model.hidden=96", "model.vocab_size=unset", "data.too_long=cut", *PAIRS],
}


def two_steps(name: str) -> BfloatProducts:
    """Train a reduced version of a recipe for two steps, evaluate and sample; return the counted multiplications."""
    recipe = load_recipe(name).settings
    text = "\n\n".join(f"{LINES[i % 6]} {i} {LINES[(i * i) % 6]}" for i in range(150))
    Path("book.txt").write_text(text, encoding="utf-8")
    lines = [f"{LINES[i % 6]} {i}" for i in range(150)]
    Path("a.txt").write_text("\n".join(lines), encoding="utf-8")
    Path("b.txt").write_text("\n".join(line[::-1] for line in lines), encoding="utf-8")
    task = recipe.get("train", {}).get("task", "lm")
    data = ["a.txt", "b.txt"] if task == "translate" else ["book.txt"]
    if recipe.get("data", {}).get("source") in CORPORA:
        data = []
    changes = [*SMALLER, *CHANGES.get(name, [])]
    words = ["train", *data, "--recipe", name, "--out", "run", "--steps", "2", "--device", "cpu", "--json"]
    with BfloatProducts() as products:
        assert main([*words, *(part for change in changes for part in ("--set", change))]) == 0
    return products


@pytest.mark.thorough
@pytest.mark.parametrize("name", recipe_names())
def test_without_bfloat16_instructions_no_recipe_multiplies_in_bfloat16(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASS_CACHE", str(tmp_path / "cache"))
    cache_speeds(Speeds(float32=100.0, bfloat16=1.0))
    products = two_steps(name)
    assert products.others > 10
    assert products.names == {}
    train = Config.read(Path("run/config.toml")).train
    assert (train.precision, train.muon_precision) == ("fp32", "fp32")


@pytest.mark.parametrize("name", ["shakespeare-fast", "tiny", "translate-original", "classify-small"])
def test_with_bfloat16_instructions_recipes_multiply_in_bfloat16(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASS_CACHE", str(tmp_path / "cache"))
    cache_speeds(Speeds(float32=100.0, bfloat16=500.0))
    products = two_steps(name)
    assert products.bfloat16 > 10
    train = Config.read(Path("run/config.toml")).train
    assert (train.precision, train.muon_precision) == ("bf16", "bf16")
    muon = " (Muon: bf16)" if train.optimizer == "muon" else ""
    assert f"precision bfloat16{muon}: bfloat16 is 5 times as fast as float32 here" in capsys.readouterr().err
