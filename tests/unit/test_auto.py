"""Sizes are chosen again with the measured speed until they are stable, and the measured shape is trained."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.config import Config
from glassformer.model.precision import Speeds, cache_speeds
from glassformer.runs.run_text import prepare_run_text
from glassformer.text.prepare import Prepared
from glassformer.training import auto_sizes
from glassformer.training.sizing import RULES, SHAPES, SIZED, ModelShape, SizingCase
from glassformer.training.step_measurement import Probe
from tests.property.trainers import small_config

Speed = Callable[[Config], float]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the speed as a function of the settings, and returns a list of the probed
    settings."""

    def of(speed: Speed) -> list[Config]:
        probed: list[Config] = []

        def probe(config: Config, tokens: Path, seconds: float) -> Probe:
            probed.append(config)
            model = config.model
            case = SizingCase("decoder", "adamw", 1, VOCABULARY, None, 1.0)
            cost = ModelShape(model.layers, model.width, model.context).training_flops_per_token(case)
            step = cost * config.train.batch * model.context / speed(config)
            return Probe("cpu", 1, "float32", 9, step, 0.1, 0.1, 0.1, 0.1, None, None)

        monkeypatch.setattr(auto_sizes, "probe", probe)
        return probed

    return of


VOCABULARY = 36
"""Tokens of the proverbs as characters."""


def long_text(folder: Path, lines: int = 15_000) -> Config:
    """Return settings of a run of one minute on a text of `lines` lines (by default a million characters)."""
    path = folder / "long.txt"
    path.write_text("the early bird catches the worm, and a rolling stone gathers no moss\n" * lines, encoding="utf-8")
    config = small_config(folder, data__source=str(path), data__document="file", train__minutes=1.0, train__steps=None)
    return config


def sized(config: Config, folder: Path, said: tuple[str, ...] = ()) -> auto_sizes.Sized:
    return auto_sizes.size_run(config, said, folder / "run", 1.0, lambda text: None)


def shape(config: Config) -> tuple[Any, ...]:
    """Return the sizes of the model that determine the speed; dropout is chosen after the last measurement."""
    model = config.model
    return model.layers, model.width, model.context, model.heads, model.tied


def weights(config: Config) -> int:
    return 12 * config.model.layers * config.model.width**2


def test_a_faster_machine_gets_a_larger_model(machine: Any, tmp_path: Path) -> None:
    config = long_text(tmp_path)
    found = []
    for speed in (1e8, 5e11, 1e13):
        probed = machine(lambda settings, speed=speed: speed)
        sizes = sized(config, tmp_path)
        assert sizes.chosen.keys() <= {*SIZED, auto_sizes.PRECISION}
        last = probed[-1]
        assert shape(sizes.config) == shape(last)
        assert sizes.config.train.batch == last.train.batch
        found.append(weights(sizes.config))
    assert found == sorted(set(found))


def test_a_slow_shape_is_replaced(machine: Any, tmp_path: Path) -> None:
    config = long_text(tmp_path)
    probed = machine(lambda settings: 1e11 if settings.model.width <= 96 else 1e9)
    sizes = sized(config, tmp_path)
    assert 2 <= len(probed) <= auto_sizes.ROUNDS
    assert shape(sizes.config) == shape(probed[-1])


def test_alternating_shapes_end_after_a_fixed_number_of_rounds(machine: Any, tmp_path: Path) -> None:
    probed = machine(lambda settings: 1e13 if settings.model.width == SHAPES[0][1] else 1e7)
    sizes = sized(long_text(tmp_path), tmp_path)
    assert len(probed) == auto_sizes.ROUNDS
    assert shape(sizes.config) == shape(probed[-1])


@pytest.mark.parametrize(("first", "real"), [(2e10, 2e9), (2e9, 2e10)])
def test_batch_and_steps_follow_the_measured_speed(
    first: float, real: float, machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both speeds suggest the smallest model, but different batches."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(auto_sizes, "FIRST_SPEED", dict.fromkeys(auto_sizes.FIRST_SPEED, first))
    config = long_text(tmp_path, lines=300)
    probed = machine(lambda settings: real)
    sizes = sized(config, tmp_path)
    train = sizes.config.train
    whole = RULES["lm"].epochs * auto_sizes._sizing_case(config, sizes.data).text_tokens
    assert len(probed) == 2
    assert shape(probed[0]) == shape(probed[1])
    assert train.batch == probed[1].train.batch != probed[0].train.batch
    if real > first:  # the text is read as often as it may be
        assert (train.steps or 0) * train.batch * sizes.config.model.context == pytest.approx(whole, rel=0.01)
    else:  # the minutes end the run
        assert train.steps is None


@pytest.mark.parametrize(("speed", "measurements"), [(1e8, 2), (1e13, 1)])
def test_late_measurements_are_only_for_smaller_shapes(
    speed: float, measurements: int, machine: Any, tmp_path: Path
) -> None:
    """In a run of 60 seconds, each measurement takes 15 seconds; a shape that is too large is never trained."""
    probed = machine(lambda settings: speed)
    sizes = auto_sizes.size_run(
        long_text(tmp_path), (), tmp_path / "run", 1.0, lambda text: None, lambda: 15.0 * len(probed)
    )
    assert len(probed) == measurements
    assert shape(sizes.config) == shape(probed[-1])
    if measurements == 2:
        assert weights(probed[1]) < weights(probed[0])


def test_settings_of_the_user_are_kept(machine: Any, tmp_path: Path) -> None:
    machine(lambda settings: 1e11)
    config = long_text(tmp_path)
    sizes = sized(config, tmp_path, ("model.layers", "train.batch", "train.learning_rate"))
    assert (sizes.config.model.layers, sizes.config.train.batch) == (config.model.layers, config.train.batch)
    assert sizes.config.train.learning_rate == config.train.learning_rate
    assert not sizes.chosen.keys() & {"model.layers", "train.batch", "train.learning_rate"}
    assert sizes.config.model.width != config.model.width


def text_of(folder: Path, size: int, end: str = "") -> Config:
    """Return settings of a run of one minute on a text of `size` characters and `end`, as byte pairs."""
    line = "the early bird catches the worm, and a rolling stone gathers no moss\n"
    path = folder / "text.txt"
    path.write_text((line * (size // len(line) + 1))[: size - len(end)] + end, encoding="utf-8")
    changes = {
        "data__source": str(path),
        "data__document": "file",
        "tokenizer__kind": "bpe",
        "tokenizer__vocab_size": 300,
    }
    return small_config(folder, **changes, train__minutes=1.0, train__steps=None)


@pytest.mark.parametrize(
    ("size", "end", "said", "kind", "vocabulary"),
    [
        (50_000, "", (), "characters", 300),
        (50_000, "é", (), "bpe", 512),  # a character that the training split lacks would be unknown
        (50_000, "".join(map(chr, range(0x4E00, 0x4E00 + 6000))) * 2, (), "bpe", 512),  # more than the vocabulary
        (50_000, "", ("tokenizer.vocab_size",), "bpe", 300),
        (50_000, "", ("tokenizer.kind",), "bpe", 512),
        (1_000_000, "", (), "bpe", 2048),
        (1_000_000, "", ("tokenizer.vocab_size",), "bpe", 300),
    ],
)
def test_the_tokenizer_suits_the_size_of_the_text(
    size: int, end: str, said: tuple[str, ...], kind: str, vocabulary: int, machine: Any, tmp_path: Path
) -> None:
    machine(lambda settings: 1e11)
    sizes = sized(text_of(tmp_path, size, end), tmp_path, said)
    assert (sizes.config.tokenizer.kind, sizes.config.tokenizer.vocab_size) == (kind, vocabulary)
    assert sizes.data.tokenizer.kind == kind
    assert not sizes.chosen.keys() & set(said)


@pytest.mark.parametrize(
    ("size", "kind", "chosen"),
    [
        (2_000_000, "txt", [("bpe", 4096)]),
        (2_000_000, "jsonl", [("bpe", 8192), ("bpe", 4096)]),
        (50_000, "jsonl", [("bpe", 512), ("characters", 300)]),
    ],
)
def test_a_large_text_is_tokenized_once(
    size: int, kind: str, chosen: list[tuple[str, int]], machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The size of a file suggests the vocabulary; a file that has more than its text is tokenized again."""
    machine(lambda settings: 1e11)
    config = text_of(tmp_path, size)
    text = Path(config.data.source).read_text(encoding="utf-8")
    path = tmp_path / f"text.{kind}"
    if kind == "jsonl":
        lines = ({"text": text[start : start + 1000], "x": "y" * 3000} for start in range(0, len(text), 1000))
        path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    prepared: list[tuple[str, int]] = []

    def prepare(config: Config, folder: Path, note: Callable[[str], None]) -> Prepared:
        prepared.append((config.tokenizer.kind, config.tokenizer.vocab_size))
        return prepare_run_text(config, folder, note)

    monkeypatch.setattr(auto_sizes, "prepare_run_text", prepare)
    config = config.replace(data=config.data.replace(source=str(path)))
    sizes = sized(config, tmp_path)
    assert prepared == chosen
    assert (sizes.config.tokenizer.kind, sizes.config.tokenizer.vocab_size) == chosen[-1]


@pytest.mark.parametrize(
    ("kind", "vocabulary", "chosen"),
    [
        ("wordpiece", 600, 600),
        ("unigram", 600, 600),
        ("unigram", 300, 512),
        ("words", 600, 600),
        ("characters", 600, 600),
        ("bpe", 600, 512),
    ],
)
def test_only_byte_pairs_get_a_smaller_vocabulary(
    kind: str, vocabulary: int, chosen: int, machine: Any, tmp_path: Path
) -> None:
    machine(lambda settings: 1e11)
    config = text_of(tmp_path, 200_000)
    config = config.replace(tokenizer=config.tokenizer.model_copy(update={"kind": kind, "vocab_size": vocabulary}))
    assert sized(config, tmp_path, (auto_sizes.KIND,)).config.tokenizer.vocab_size == chosen


def test_piped_text_is_read_again_for_another_tokenizer(
    machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(lambda settings: 1e11)
    config = text_of(tmp_path, 50_000)
    text = Path(config.data.source).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    sizes = sized(config.replace(data=config.data.model_copy(update={"source": "-"})), tmp_path)
    assert sizes.config.data.source == "-"
    assert sizes.data.train.bytes + sizes.data.validation.bytes == len(text)
    assert not list((tmp_path / "run").rglob("incoming-*"))


def test_a_text_that_is_shorter_than_the_context_gets_a_smaller_one(machine: Any, tmp_path: Path) -> None:
    machine(lambda settings: 1e11)
    config = text_of(tmp_path, 200)
    config = config.replace(model=config.model.replace(context=256))
    assert sized(config, tmp_path).config.model.context < 200


def test_numbers_keep_their_own_tokenizer(machine: Any, tmp_path: Path) -> None:
    machine(lambda settings: 1e11)
    config = small_config(tmp_path, data__source="numbers", data__size=200, train__minutes=1.0, train__steps=None)
    assert not sized(config, tmp_path).chosen.keys() & {auto_sizes.KIND, auto_sizes.VOCABULARY}


@pytest.mark.parametrize(
    ("bfloat16", "said", "precision"), [(500.0, "auto", "bf16"), (1.0, "auto", "fp32"), (500.0, "fp32", "fp32")]
)
def test_the_precision_is_chosen_before_probing(
    bfloat16: float, said: str, precision: str, machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLASS_CACHE", str(tmp_path / "cache"))
    cache_speeds(Speeds(100.0, bfloat16))
    probed = machine(lambda settings: 1e11)
    config = long_text(tmp_path)
    config = config.replace(train={**config.train.model_dump(), "precision": said, "device": "cpu"})
    sizes = sized(config, tmp_path)
    assert sizes.config.train.precision == precision
    assert probed
    assert all(config.train.precision == precision for config in probed)
    decided = said == "auto"
    assert sizes.chosen.get(auto_sizes.PRECISION) == (precision if decided else None)
    assert any("times as fast as float32" in reason for reason in sizes.why) == decided


def pairs(folder: Path, count: int) -> Config:
    """Return settings of a run of one minute on `count` pairs: short lines, and one long pair."""
    lines = [f"the {number} early birds catch worm {number}" for number in range(count - 1)]
    lines.append("a rolling stone gathers no moss " * 9)
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1].strip()}\n" for line in lines), encoding="utf-8")
    changes = {"data__source": str(folder / "pairs.tsv"), "data__document": "file", "tokenizer__kind": "bpe"}
    train = {"train__task": "translate", "train__minutes": 1.0, "train__steps": None, "train__batch_tokens": 900}
    return small_config(folder, **changes, **train, model__positions="learned", model__shared_embedding=True)


def test_of_many_pairs_a_thousand_are_held_out(machine: Any, tmp_path: Path) -> None:
    probed = machine(lambda settings: 1e10)
    sizes = sized(pairs(tmp_path, 12_000), tmp_path)
    assert len(sizes.data.validation) == pytest.approx(auto_sizes.HELD_OUT, rel=0.02)
    assert sizes.chosen[auto_sizes.VALIDATION] == sizes.config.data.validation_fraction == 0.0833
    assert sizes.chosen[auto_sizes.VOCABULARY] == sizes.config.tokenizer.vocab_size == 1024
    lengths = sizes.data.train.source.lengths
    assert (lengths < sizes.config.model.context).mean() >= auto_sizes.COVERED_FRACTION
    assert sizes.config.model.context < lengths.max()  # the one long line is cut
    assert probed[-1].train.batch_tokens == sizes.chosen["train.batch_tokens"]


def test_settings_for_pairs_are_kept_and_few_pairs_hold_out_a_tenth(machine: Any, tmp_path: Path) -> None:
    machine(lambda settings: 1e10)
    sizes = sized(pairs(tmp_path, 900), tmp_path, (auto_sizes.VOCABULARY, "train.batch_tokens", "model.context"))
    assert sizes.chosen.keys().isdisjoint(
        {auto_sizes.VOCABULARY, auto_sizes.VALIDATION, "train.batch_tokens", "model.context"}
    )
    assert len(sizes.data.validation) == 90
    assert sizes.config.train.batch_tokens == 900
