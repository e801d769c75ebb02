"""Heads whose values have another width than their queries and keys, and attention without an output projection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.base.config import ModelConfig
from glassformer.model.build import build_model
from glassformer.model.count import count_model
from tests.journey.commands import here
from tests.parity.written_runs import make_run
from tests.property.models import VOCAB, tiny
from tests.property.trainers import LINES


def test_the_count_has_the_shapes_of_both_widths() -> None:
    config = tiny(kv_heads=2, value_width=7, layers=1)
    parts = {part.name: part for part in count_model(config, VOCAB)}
    assert parts["self-attention"].parameters == 22 * (6 * 10 + 2 * 10 + 2 * 7) + 6 * 7 * 22
    assert parts["self-attention"].cache_bytes == 2 * (10 + 7) * 4
    without = {part.name: part for part in count_model(tiny(heads=2, value_width=11, output_projection=False), VOCAB)}
    assert without["self-attention"].parameters == 3 * 22 * (2 * 10 + 2 * 10 + 2 * 11)


def test_without_projection_the_values_are_initialized_as_writers() -> None:
    config = tiny(heads=2, value_width=11, output_projection=False, zero_output=True)
    weights = build_model(config, VOCAB).state_dict()
    assert not weights["stack.blocks.0.attention.value.weight"].any()
    assert weights["stack.blocks.0.attention.query.weight"].any()
    assert not any("output" in name for name in weights)


@pytest.mark.parametrize(
    ("changes", "problem", "remedy"),
    [
        ({"width": 12, "heads": 4, "value_width": 5}, "got 4 x 5 and width = 12", "value_width = 3"),
        ({"width": 10, "heads": 4, "head_width": 4}, "got 4 x 4 and width = 10", "number of heads that divides width"),
    ],
)
def test_without_projection_the_heads_must_fill_the_width(changes: dict[str, int], problem: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        ModelConfig(output_projection=False, **changes)
    assert remedy in str(caught.value)


@pytest.mark.thorough
def test_a_model_with_four_query_channels_and_eight_value_channels_works_in_every_command(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n".join(f"{LINES[i % 6]} {i}" for i in range(90)), encoding="utf-8")
    small = ["--steps", "4", "--set", "train.threads=1", "--set", "train.evaluate_tokens=200"]
    train = ["train", "book.txt", "--recipe", "tutorial-c1", "--out", "run", *small]
    assert here(*train, folder=tmp_path).returncode == 0
    for words in (
        ["generate", "run", "the", "--tokens", "4"],
        ["evaluate", "run"],
        ["explain", "run", "the cat"],
        ["receipt", "run", "the cat"],
        ["heads", "run"],
        ["attribute", "run", "the cat"],
        ["verify", "run"],
    ):
        done = here(*words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "no output projection" in here("explain", "run", "the cat", folder=tmp_path).stdout
    for words, problem in (
        (["share", "run", "--out", "page.html"], "model.output_projection = false"),
        (["export", "run", "--to", "hf", "--out", "hf"], "model.value_width = 8"),
        (["export", "run", "--to", "gguf", "--out", "run.gguf"], "model.value_width = 8"),
        (["prune", "run", "--l0", "1", "--out", "pruned"], "model.output_projection = false"),
    ):
        done = here(*words, folder=tmp_path)
        assert done.returncode == 2, words
        assert problem in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["hf", "onnx"])
def test_without_projection_a_model_is_exported_with_identity_matrices(target: str, tmp_path: Path) -> None:
    make_run(tmp_path / "run", output_projection=False, attention_bias=True, positions="learned", feedforward_bias=True)
    done = here("export", "run", "--to", target, "--out", "out", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(each["ok"] for each in json.loads(done.stdout)["measured"])


@pytest.mark.thorough
def test_values_of_another_width_are_exported_to_onnx(tmp_path: Path) -> None:
    make_run(tmp_path / "run", value_width=7)
    done = here("export", "run", "--to", "onnx", "--out", "out", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(each["ok"] for each in json.loads(done.stdout)["measured"])
