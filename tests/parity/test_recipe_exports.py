"""Models of all general recipes are exported to every program for their task, and give the same results there.

`glass export` compares logits and greedy tokens with the run before the exported file appears.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ctranslate2")
pytest.importorskip("gguf")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from glassformer.base.config import PAIRS, Config
from glassformer.base.recipes import load_recipe, recipe_names
from tests.journey.commands import here
from tests.parity.ctranslate2_runs import unlikely_translations
from tests.parity.written_runs import make_run

PUBLISHED = ("bangla-slm", "shakespeare-nano", "translate-original")
"""Recipes that reproduce published models or results, as their summaries say; tutorial recipes are not included."""
WITHOUT_MODEL = ("fine-tune",)
"""Recipes that contain only training settings: the model is that of the run from which training begins."""
GENERAL = [
    name for name in recipe_names() if name not in (*PUBLISHED, *WITHOUT_MODEL) and not name.startswith("tutorial-")
]
TARGETS = {"lm": ("hf", "onnx", "gguf"), **dict.fromkeys(PAIRS, ("hf", "onnx", "ctranslate2"))}
"""Export targets of a task; tasks that are not listed have the targets hf and onnx."""


def task_of(recipe: str) -> str:
    """Return the training task of a recipe."""
    return Config.from_dict(load_recipe(recipe).settings).train.task


def make_run_of(recipe: str, folder: Path) -> None:
    """Make a run with a recipe's settings, but with one layer and a small vocabulary and context."""
    config = Config.from_dict(load_recipe(recipe).settings)
    model: dict[str, Any] = {**config.model.model_dump(), "layers": 1, "context": 96, "vocab_size": None}
    tokenizer: dict[str, Any] = {**config.tokenizer.model_dump(), "vocab_size": 340}
    make_run(folder, config.train.task, tokenizer, {"windows": config.data.windows}, **model)


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_that_reproduce_publications_say_so(name: str) -> None:
    assert "publish" in load_recipe(name).summary


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "target"), [(name, target) for name in GENERAL for target in TARGETS.get(task_of(name), ("hf", "onnx"))]
)
def test_a_recipe_can_be_exported_to_every_target(name: str, target: str, tmp_path: Path) -> None:
    make_run_of(name, tmp_path / "run")
    format = "hf" if target == "ctranslate2" else target
    done = here("export", "run", "--to", format, "--out", "out", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(each["ok"] for each in json.loads(done.stdout)["measured"])
    if target == "ctranslate2":
        assert unlikely_translations(tmp_path / "run", tmp_path / "out") == 0
