"""Sizes chosen for a text, a time limit and a speed: they are valid, grow with time, and keep the user's settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.config import EXAMPLES, Config
from glassformer.training.sizing import (
    HEAD_WIDTH,
    LARGEST_DECAY,
    RULES,
    SHAPES,
    SIZED,
    ModelShape,
    SizingCase,
    choose_sizes,
    choose_vocabulary,
)

CASE = SizingCase("decoder", "muon", 1_000_000, 2048, None, 600.0)
SPEED = 1e11


def config_of(settings: dict[str, Any], task: str = "lm") -> Config:
    """Return the settings of a run of this task with rotary positions."""
    sections: dict[str, dict[str, Any]] = {"model": {"positions": "rotary"}, "train": {"task": task}}
    for name, value in settings.items():
        section, _, field = name.partition(".")
        sections[section][field] = value
    return Config.from_dict(sections)


def test_flops_per_token_are_calculated_by_hand() -> None:
    shape = ModelShape(layers=3, width=40, context=50)
    assert shape.weights("decoder") == 3 * (4 * 40 * 40 + 2 * 40 * 160)
    assert shape.training_flops_per_token(CASE) == 6 * (shape.weights("decoder") + 40 * 2048 + 3 * 2 * 40 * 50 / 2)


FAMILIES_OF_TASKS = [
    ("lm", "decoder"),
    ("masked", "encoder"),
    ("classify", "encoder"),
    ("translate", "encoder-decoder"),
    ("summarize", "encoder-decoder"),
]


@pytest.mark.parametrize(("task", "family"), FAMILIES_OF_TASKS)
@given(
    tokens=st.integers(20, 10**10),
    vocabulary=st.integers(2, 200_000),
    seconds=st.floats(0.1, 1e6),
    speed=st.floats(1e8, 1e15),
    row=st.floats(1, 5000),
    optimizer=st.sampled_from(["adamw", "muon"]),
    like_length=st.booleans(),
    longest=st.integers(2, 5000),
)
def test_every_choice_of_sizes_is_valid(
    tokens: int,
    vocabulary: int,
    seconds: float,
    speed: float,
    row: float,
    optimizer: str,
    like_length: bool,
    longest: int,
    task: str,
    family: str,
) -> None:
    if task in EXAMPLES:
        case = SizingCase(family, optimizer, tokens, vocabulary, row, seconds, task, longest, like_length)
    else:
        case = SizingCase(family, optimizer, tokens, vocabulary, None, seconds, task)
    sizes = choose_sizes(case, speed, {})
    assert set(sizes.settings) <= set(SIZED)
    config = config_of(sizes.settings, task)
    if task not in EXAMPLES:
        assert config.model.context < tokens
    rules = RULES[task]
    assert sizes.tokens <= 2 * max(rules.epochs * tokens, 512 * max(2, rules.fewest_steps))
    assert all(sizes.why)


def test_the_largest_sufficiently_trained_model_is_chosen() -> None:
    for seconds in (1, 30, 600, 10_000, 1e6):
        case = replace(CASE, seconds=float(seconds), text_tokens=10**8)
        shape = choose_sizes(case, SPEED, {}).shape
        weights = shape.weights("decoder")
        tokens = SPEED * seconds / shape.training_flops_per_token(case)
        assert tokens >= RULES["lm"].tokens_per_weight * weights or shape == ModelShape(*SHAPES[0])
        larger = [ModelShape(*row) for row in SHAPES[SHAPES.index((shape.layers, shape.width, shape.context)) + 1 :]]
        assert all(
            SPEED * seconds / one.training_flops_per_token(case)
            < RULES["lm"].tokens_per_weight * one.weights("decoder")
            for one in larger
        )
    poor = choose_sizes(replace(CASE, text_tokens=10_000, seconds=1e9), SPEED, {}).shape
    assert poor.weights("decoder") <= RULES["lm"].weights_per_token * 10_000


def test_more_time_or_speed_never_means_a_smaller_model() -> None:
    weights = [
        choose_sizes(replace(CASE, seconds=seconds, text_tokens=10**9), SPEED, {}).shape.weights("decoder")
        for seconds in (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
    ]
    assert weights == sorted(weights)
    assert weights[0] < weights[-1]
    slow = choose_sizes(replace(CASE, seconds=60.0), 1e11, {})
    fast = choose_sizes(replace(CASE, seconds=6.0), 1e12, {})
    assert slow.shape == fast.shape


def test_the_dropout_suits_the_given_steps() -> None:
    case = replace(CASE, text_tokens=50_000, seconds=1e5)
    assert choose_sizes(case, SPEED, {}).settings["model.dropout_residual"] == 0.3
    few = choose_sizes(case, SPEED, {"train.steps": 10})
    assert few.settings["model.dropout_residual"] == 0.0
    assert f"the data is read {few.tokens / 50_000:.1f} times" in few.why[1]


def test_a_small_text_is_read_a_limited_number_of_times() -> None:
    sizes = choose_sizes(replace(CASE, text_tokens=50_000, seconds=1e5), SPEED, {})
    assert sizes.tokens == pytest.approx(RULES["lm"].epochs * 50_000, rel=0.01)
    assert sizes.settings["train.steps"] * sizes.settings["train.batch"] * sizes.shape.context == sizes.tokens
    assert "read at most 40 times" in sizes.why[-1]
    assert "train.steps" not in choose_sizes(CASE, 1e9, {}).settings  # there the minutes end the run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.layers", 7),
        ("model.width", 90),
        ("model.context", 33),
        ("train.batch", 5),
        ("model.heads", 2),
        ("train.learning_rate", 0.5),
        ("train.weight_decay", 0.7),
        ("model.tied", False),
        ("train.evaluate_every", 3),
    ],
)
def test_settings_of_the_user_are_not_changed(name: str, value: Any) -> None:
    sizes = choose_sizes(CASE, SPEED, {name: value})
    assert name not in sizes.settings
    config = config_of({**sizes.settings, name: value})
    if name in ("model.layers", "model.width", "model.context"):
        assert getattr(sizes.shape, name.partition(".")[2]) == value
    if name == "model.width":
        assert config.model.K % 2 == 0
        assert config.model.heads in (3, 5)  # heads of 30 or 18, for 32 in wide and 16 in narrow models
    if name == "train.batch":
        assert sizes.tokens % (5 * sizes.shape.context) == 0


def test_the_weight_decay_of_a_run_with_muon_depends_on_its_rate_and_steps() -> None:
    for seconds in (600.0, 3600.0, 36_000.0):
        case = replace(CASE, seconds=seconds, text_tokens=10**9)
        sizes = choose_sizes(case, SPEED, {})
        steps = sizes.tokens / (sizes.settings["train.batch"] * sizes.shape.context)
        decay = sizes.settings["train.weight_decay"]
        assert sizes.settings["train.muon_learning_rate"] * decay * steps == pytest.approx(RULES["lm"].decay, rel=0.05)
        slower = choose_sizes(case, SPEED, {"train.muon_learning_rate": 0.015})
        assert slower.settings["train.weight_decay"] == pytest.approx(2 * decay, rel=0.05)
    few = choose_sizes(replace(CASE, seconds=1.0), 1e9, {})
    assert few.settings["train.weight_decay"] == LARGEST_DECAY
    assert "train.weight_decay" not in choose_sizes(CASE, SPEED, {"train.muon_learning_rate": 0.0}).settings
    assert "train.weight_decay" not in choose_sizes(replace(CASE, optimizer="adamw"), SPEED, {}).settings


def test_a_large_vocabulary_is_tied() -> None:
    tied = [choose_sizes(replace(CASE, vocabulary=size), SPEED, {}).settings["model.tied"] for size in (64, 8192)]
    assert tied == [False, True]


def test_heads_have_the_usual_width() -> None:
    for layers, width, _ in SHAPES:
        case = replace(CASE, text_tokens=10**12, seconds=1e12)
        heads = choose_sizes(case, SPEED, {"model.layers": layers, "model.width": width}).settings["model.heads"]
        wanted = next((head for limit, head in HEAD_WIDTH.items() if width <= limit), 64)
        assert width // heads == wanted


@pytest.mark.parametrize("heads", [1, 3, 5, 32])
def test_the_width_suits_the_given_heads(heads: int) -> None:
    sizes = choose_sizes(CASE, SPEED, {"model.heads": heads})
    assert sizes.shape.width % (2 * heads) == 0
    shared = choose_sizes(replace(CASE, kv_heads=heads), SPEED, {})
    assert shared.settings["model.heads"] % heads == 0
    assert config_of({**shared.settings, "model.kv_heads": heads}).model.K % 2 == 0


PAIRS = SizingCase("encoder-decoder", "muon", 1_000_000, 4096, 30.0, 1400.0, "translate", longest=67, like_length=True)


def test_length_buckets_are_counted_in_tokens_and_fit_the_context() -> None:
    sizes = choose_sizes(PAIRS, SPEED, {})
    assert "train.batch" not in sizes.settings
    share = sizes.tokens / RULES["translate"].steps
    assert sizes.settings["train.batch_tokens"] == 1 << round(math.log2(share))
    assert sizes.settings["model.context"] == 80  # the multiple of 16 above the longest
    assert "train.learning_rate" not in sizes.settings
    assert choose_sizes(PAIRS, SPEED, {"train.batch_tokens": 777}).settings.keys().isdisjoint({"train.batch_tokens"})


def test_dropout_grows_with_the_number_of_epochs() -> None:
    found = [
        choose_sizes(replace(PAIRS, text_tokens=10**power), SPEED, {}).settings["model.dropout_residual"]
        for power in (5, 6, 7, 8)
    ]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (0.2, 0.0)
    assert any("dropout" in reason for reason in choose_sizes(PAIRS, SPEED, {}).why)


@pytest.mark.parametrize(
    ("size", "task", "tokens"),
    [
        (0, "translate", 1024),
        (500_000, "translate", 1024),
        (3_700_000, "translate", 4096),
        (10**9, "translate", 32768),
        (1_500_000, "classify", 8192),
        (50_000, "lm", 512),
        (10**6, "lm", 2048),
        (3_700_000, "lm", 8192),
        (10**9, "lm", 8192),
        (10**6, "masked", None),
    ],
)
def test_a_vocabulary_grows_with_the_texts(size: int, task: str, tokens: int | None) -> None:
    assert choose_vocabulary(size, task) == tokens


LABELS = SizingCase("encoder", "adamw", 300_000, 8192, 45.0, 500.0, "classify", longest=120, like_length=True)


def test_few_labelled_texts_are_read_a_few_times_with_much_dropout() -> None:
    sizes = choose_sizes(LABELS, SPEED, {})
    assert sizes.tokens == pytest.approx(RULES["classify"].epochs * 300_000, rel=0.01)
    assert sizes.settings["model.dropout_embedding"] == 0.5
    assert sizes.settings["model.dropout_residual"] == 0.3
    assert "train.learning_rate" not in sizes.settings
    many = choose_sizes(replace(LABELS, text_tokens=10**9), SPEED, {})
    assert many.settings["model.dropout_residual"] == 0.1
    assert many.shape.weights("encoder") >= sizes.shape.weights("encoder")


def test_a_few_hundred_labelled_texts_are_read_for_enough_steps() -> None:
    """12,000 tokens, read 6 times in steps of 512, would be 141 steps."""
    case = replace(LABELS, text_tokens=12_000, vocabulary=600)
    sizes = choose_sizes(case, SPEED, {})
    assert sizes.settings["train.batch_tokens"] == 512
    assert sizes.tokens == pytest.approx(1000 * 512, rel=0.01)
    assert choose_sizes(replace(case, seconds=0.5), SPEED, {}).tokens < 1000 * 512
