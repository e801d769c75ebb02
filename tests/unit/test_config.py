"""Settings: round trip through TOML, errors that state the problem and a remedy, and a flag for every setting."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from glassformer.app.cli.run_arguments import add_from_argument, add_run_arguments, request_from
from glassformer.app.cli.settings import SHORT, add_setting_flags, changes_from
from glassformer.base.config import Config, ModelConfig, TrainConfig, settings_of
from glassformer.base.errors import GlassError
from glassformer.base.recipes import load_recipe, recipe_names
from glassformer.base.settings import UNSET
from glassformer.launch.request import RunRequest


def test_a_toml_round_trip_keeps_unset_values() -> None:
    config = Config().with_changes({"train.steps": "unset", "train.minutes": "3", "sample.stop": '["a", "b"]'})
    again = Config.from_dict(tomllib.loads(config.to_toml()))
    assert again == config
    assert again.train.steps is None
    assert again.sample.stop == ("a", "b")


@settings(max_examples=50)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: text != UNSET))
def test_any_prompt_survives_a_toml_round_trip(prompt: str) -> None:
    config = Config.from_dict({"sample": {"prompt": prompt}})
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        ModelConfig().layers = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("sections", "problem", "remedy"),
    [
        ({"model": {"leyers": 3}}, "model.leyers", "layers"),
        ({"modle": {}}, "modle", "model"),
        ({"model": {"norm": "layer"}}, "model.norm", "layernorm"),
        ({"model": {"heads": 3}}, "heads = 3 does not divide width = 128", "heads to 2"),
        ({"model": {"heads": 4, "kv_heads": 3}}, "kv_heads = 3 does not divide heads = 4", "kv_heads to 2"),
        ({"model": {"width": 10, "heads": 2, "positions": "rotary"}}, "head width 5 is odd", "even"),
        ({"model": {"width": 15, "heads": 5, "positions": "sinusoidal"}}, "width = 15 is odd", "even"),
        ({"model": {"window": 300}}, "window = 300 is longer than context = 256", "window"),
        ({"model": {"norm": "rmsnorm", "norm_bias": True}}, "norm = rmsnorm has no bias", "layernorm"),
        ({"model": {"norm": "none", "norm_order": "post"}}, "norm_order = post", "pre"),
        ({"model": {"norm": "none", "norm_order": "output"}}, "norm_order = output", "pre"),
        ({"model": {"qk_norm": "heads"}}, "model.qk_norm = 'heads'", "Did you mean head?"),
        (
            {"model": {"family": "encoder", "classes": 3, "head_transform": True}, "train": {"task": "classify"}},
            "head_transform",
            "head_transform = false",
        ),
        ({"model": {"head_transform": True}, "train": {"task": "classify"}}, "head_transform", "lm, masked, translate"),
        ({"model": {"removed_heads": ["dec.4.self.0"]}}, "'dec.4.self.0'", "0 to 3 of dec.0.self to dec.3.self"),
        ({"model": {"removed_heads": ["dec.0.self.4"]}}, "'dec.0.self.4'", "heads 0 to 3"),
        ({"model": {"removed_heads": ["dec.0.self.00"]}}, "'dec.0.self.00'", "heads 0 to 3"),
        ({"model": {"removed_heads": ["dec.0.cross.0"]}}, "'dec.0.cross.0'", "dec.0.self"),
        ({"model": {"removed_heads": ["enc.0.self.0"]}}, "'enc.0.self.0'", "dec.0.self"),
        (
            {"model": {"removed_heads": ["enc.0.cross.0"]}, "train": {"task": "translate"}},
            "'enc.0.cross.0'",
            "enc.0.self to enc.3.self, dec.0.self to dec.3.self, dec.0.cross to dec.3.cross",
        ),
        (
            {"model": {"removed_heads": ["enc.2.self.0"], "encoder_layers": 2}, "train": {"task": "translate"}},
            "'enc.2.self.0'",
            "enc.0.self to enc.1.self",
        ),
        (
            {"model": {"removed_heads": ["dec.0.self.1", "dec.1.self.1", "dec.0.self.1"]}},
            "'dec.0.self.1' twice",
            "once",
        ),
        ({"model": {"removed_heads": "dec.0.self.1"}}, "model.removed_heads", "list of strings"),
        ({"model": {"removed_heads": ["dec.0.self.1"], "qk_norm": "whole"}}, "qk_norm = whole", "removed_heads"),
        ({"model": {"relative_buckets": 32, "relative_max_distance": 16}}, "relative_max_distance = 16", "17 or more"),
        ({"model": {"dropout_residual": 1.5}}, "model.dropout_residual", "below 1"),
        ({"train": {"steps": -3}}, "train.steps = -3", "Give 1 or more"),
        ({"train": {"steps": None}}, "the run has no limit", "minutes"),
        ({"train": {"steps": None, "patience": 3}}, "schedule = cosine needs the length", "steps or minutes"),
        ({"train": {"micro_batch": 64}}, "micro_batch = 64 is more than batch = 32", "micro_batch"),
        ({"train": {"schedule": "noam", "warmup": 0}}, "noam needs warm-up, but warmup = 0", "one step"),
        ({"train": {"device": "gpu"}}, "train.device", "auto, cpu, cuda, cuda:N or mps"),
        ({"train": {"learning_rate": float("nan")}}, "train.learning_rate", "finite"),
        ({"sample": {"temperature": -1}}, "sample.temperature = -1", "Give 0 or more"),
        ({"tokenizer": {"kind": "sentencepiece"}}, "tokenizer.kind", "bpe"),
        ({"data": {"validation_fraction": 1}}, "data.validation_fraction", "below 1"),
    ],
)
def test_impossible_settings_are_refused_in_two_lines(sections: dict[str, object], problem: str, remedy: str) -> None:
    with pytest.raises(GlassError) as caught:
        Config.from_dict(sections)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert len(str(caught.value).splitlines()) == 2


def test_removed_heads_are_sorted() -> None:
    names = ["dec.10.self.1", "dec.9.self.11", "dec.9.self.3", "dec.9.self.0"]
    config = Config.from_dict({"model": {"layers": 12, "heads": 16, "removed_heads": names}})
    assert list(config.model.removed_heads) == names[::-1][:2] + names[1::-1]
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config
    assert config.model.kept_heads("dec.9.self") == [1, 2, *range(4, 11), *range(12, 16)]
    assert config.model.replace(kv_heads=8).kept_kv_heads("dec.9.self") == list(range(8))
    three = config.model.replace(removed_heads=["dec.9.self.0", "dec.9.self.1", "dec.9.self.2"], kv_heads=8)
    assert three.kept_kv_heads("dec.9.self") == list(range(1, 8))


def test_every_setting_is_a_flag_with_help() -> None:
    parser = argparse.ArgumentParser()
    add_setting_flags(parser, Config.model_fields)
    shown = parser.format_help()
    for section, values in Config().model_dump().items():
        for name in values:
            assert f"--{section}.{name}" in shown
            field = Config.model_fields[section].annotation.model_fields[name]  # type: ignore[union-attr]
            assert field.description


def test_later_sources_of_settings_take_precedence() -> None:
    parser = argparse.ArgumentParser()
    add_setting_flags(parser, Config.model_fields)
    for name in SHORT:
        parser.add_argument(f"--{name}", dest=f"short.{name}")
    arguments = parser.parse_args(
        ["--set", "model.layers=7", "--set", "train.seed=1", "--train.seed", "2", "--seed", "3", "--minutes", "0.5"]
    )
    config = settings_of([{"model": {"width": 64}}], changes_from(arguments))
    assert (config.model.layers, config.model.width, config.train.seed) == (7, 64, 3)
    assert (config.train.minutes, config.train.steps) == (0.5, None)
    config = settings_of([{"train": {"minutes": 10, "steps": "unset"}}], {"train.steps": "7"})
    assert (config.train.minutes, config.train.steps) == (None, 7)
    config = settings_of([load_recipe("translate-modern").settings], {"train.batch": "7"})
    assert (config.train.batch, config.train.batch_tokens) == (7, None)


@pytest.mark.parametrize("wrong", ["model.layers", "nothing.layers=3", "model.leyers=3"])
def test_invalid_set_options_are_refused(wrong: str) -> None:
    with pytest.raises(GlassError):
        settings_of([], changes_from(argparse.Namespace(set=[wrong])))


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_valid_and_described(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.summary
    assert Config.from_dict(recipe.settings) != Config()


def test_default_training_settings_are_usable() -> None:
    assert TrainConfig().steps == 2000


def request_of(*words: str) -> RunRequest:
    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    add_from_argument(parser)
    return request_from(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "recipe", "measured"),
    [
        (["book.txt"], "auto", True),
        (["book.txt", "--minutes", "5"], "auto", True),
        (["book.txt", "--minutes", "0.5"], "auto", False),
        (["book.txt", "--steps", "300"], "auto", False),
        (["book.txt", "--recipe", "auto", "--minutes", "0.5"], "auto", True),
        (["book.txt", "--recipe", "tiny"], "tiny", False),
        (["book.txt", "--config", "own.toml"], None, False),
        (["book.txt", "--task", "masked", "--minutes", "5"], "auto-masked", True),
        (["mails.csv", "--task", "classify", "--minutes", "5"], "auto-classify", True),
        (["articles.jsonl", "--task", "summarize", "--steps", "9"], "auto-summarize", False),
        (["topics", "--task", "classify", "--minutes", "5"], None, False),
        (["a.en", "a.de", "--task", "translate", "--minutes", "5"], "auto-translate", True),
        (["a.en", "a.de", "--task", "translate", "--recipe", "auto"], "auto-translate", True),
        (["a.en", "a.de", "--task", "translate", "--steps", "300"], "auto-translate", False),
        (["stories", "--minutes", "5"], None, False),
        ([], None, False),
    ],
)
def test_a_recipe_is_chosen_if_none_is_given(
    words: list[str], recipe: str | None, measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text("[train]\nminutes = 5\n", encoding="utf-8")
    request = request_of(*words)
    assert request.recipe_name == recipe
    assert request.leaves_sizes_open() == measured
    config = request.config
    if recipe == "auto":
        assert (config.model.positions, config.train.optimizer) == ("rotary", "muon")
        assert (config.train.steps is None) == ("--steps" not in words)
        assert (config.train.minutes is None) == ("--steps" in words)
    elif recipe is not None and recipe.startswith("auto-"):
        assert config.train.task == recipe.removeprefix("auto-")
        assert config.model.embedding_norm
    elif recipe is None:
        assert config.train.optimizer == "adamw"


def test_settings_of_the_user_override_the_default_recipe() -> None:
    config = request_of("book.txt", "--steps", "9", "--train.optimizer", "adamw", "--model.layers", "2").config
    assert (config.train.optimizer, config.model.layers, config.model.positions) == ("adamw", 2, "rotary")
