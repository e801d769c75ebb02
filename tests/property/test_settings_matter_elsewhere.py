"""Every setting in the sections tokenizer, data and sample changes a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.base.config import Config, DataConfig, SampleConfig, TokenizerConfig
from glassformer.model.build import build_model
from glassformer.runs.run_text import prepare_run_text
from glassformer.tasks import TextModel
from glassformer.tasks.make import make_task
from glassformer.text.batches import training_rows
from glassformer.text.prepare import prepare
from glassformer.text.records import RECORD_KINDS
from tests.property.trainers import LINES

TOKENIZER: dict[str, tuple[dict[str, Any], Any]] = {
    "kind": ({}, "characters"),
    "vocab_size": ({}, 290),
    "normalization": ({"kind": "characters"}, "nfd"),
    "lowercase": ({"kind": "characters"}, True),
    "min_count": ({"kind": "characters"}, 50),
    "sample_bytes": ({}, 1000),
    "seed": ({"sample_bytes": 1000}, 1),
}
DATA: dict[str, tuple[dict[str, Any], Any]] = {
    "source": ({}, "other.txt"),
    "column": ({"source": "table.csv", "column": "a"}, "b"),
    "header": ({"source": "table.csv", "column": "1"}, "no"),
    "delimiter": ({"source": "table.csv", "column": "1"}, "tab"),
    "quoting": ({"source": "quoted.csv", "quoting": "none"}, "line"),
    "extra_fields": ({"source": "wide.csv", "column": "2", "extra_fields": "cut"}, "join"),
    "encoding": ({"source": "old.txt", "encoding": "windows-1252"}, "utf-8"),
    "document": ({}, "line"),
    "min_words": ({"document": "line"}, 9),
    "max_words": ({"document": "line"}, 9),
    "min_characters": ({"document": "line"}, 45),
    "clean": ({"source": "twice.txt"}, True),
    "duplicates": ({"source": "twice.txt", "document": "line"}, "exact"),
    "split": ({"document": "line"}, "random"),
    "validation_fraction": ({}, 0.3),
    "validation_limit": ({}, 50),
    "windows": ({"document": "line"}, "documents"),
    "size": ({"source": "addition", "size": 60}, 50),
    "seed": ({"source": "addition", "size": 60}, 1),
}
EXAMPLES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "target": ("translate", {"source": "book.txt", "target": "other.txt"}, "book.txt"),
    "target_column": ("translate", {"source": "three.tsv", "column": "1", "target_column": "2"}, "3"),
    "label_column": ("classify", {"source": "three.tsv", "column": "1", "label_column": "2"}, "3"),
    "validation": ("translate", {"source": "three.tsv", "column": "1", "target_column": "2"}, "four.tsv"),
    "validation_target": (
        "translate",
        {"source": "book.txt", "target": "other.txt", "validation": "book.txt", "validation_target": "other.txt"},
        "book.txt",
    ),
    "too_long": ("translate", {"source": "book.txt", "target": "other.txt"}, "leave_out"),
    "chat_template": (
        "chat",
        {"source": "three.tsv", "column": "1", "target_column": "2"},
        "{% for m in messages %}{{ m.role }} {{ m.content }}{{ eos_token }}{% endfor %}",
    ),
}
SAMPLE: dict[str, tuple[dict[str, Any], Any]] = {
    "tokens": ({}, 7),
    "beams": ({}, 3),
    "length_penalty": ({"beams": 3, "tokens": 9}, 3.0),
    "temperature": ({}, 5.0),
    "top_k": ({}, 1),
    "top_p": ({}, 0.01),
    "min_p": ({}, 0.99),
    "repetition_penalty": ({"temperature": 0}, 5.0),
    "stop": ({}, ("e", "a", "t")),
    "seed": ({}, 1),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = "\n".join(f"{LINES[(i * i) % 6].title()} é {i % 9}" for i in range(150)) + "\n"
    (tmp_path / "book.txt").write_text(text, encoding="utf-8")
    (tmp_path / "other.txt").write_text(text.upper(), encoding="utf-8")
    (tmp_path / "twice.txt").write_text(text.replace("\n", "  \n") * 2, encoding="utf-8")
    (tmp_path / "old.txt").write_bytes("Größe 10 €\n".encode() * 90)
    rows = "\n".join(f"{LINES[i % 6]} {i},{LINES[(i + 1) % 6]} {i}" for i in range(60))
    (tmp_path / "table.csv").write_text(f"a,b\n{rows}\n", encoding="utf-8")
    (tmp_path / "quoted.csv").write_text("text\n" + '"one and two" of it\n"three of it"\n' * 30, encoding="utf-8")
    (tmp_path / "wide.csv").write_text("id,text\n" + "1,one, and two of it\n2,three of it\n" * 30, encoding="utf-8")
    for name, rows in (("three", range(60)), ("four", range(60, 99))):
        table = "\n".join(f"{LINES[i % 6]} {i}\t{'ab'[i % 2]}\t{'xyz'[i % 3]}" for i in rows)
        (tmp_path / f"{name}.tsv").write_text(table + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outcome(folder: Path, data: dict[str, Any], tokenizer: dict[str, Any]) -> tuple[Any, ...]:
    """Return all results of preparation: both token stores, the tokenizer, and the rows of one step."""
    config = DataConfig(**{"source": "book.txt", **data})
    found = prepare(RECORD_KINDS["lm"], config, TokenizerConfig(**{"vocab_size": 300, **tokenizer}), folder / "cache")
    rows = training_rows(found.train.source, config, 16, 4, 0, 0, found.tokenizer.end_id)
    stores = [(np.asarray(s.source.tokens).tobytes(), s.bytes) for s in (found.train, found.validation)]
    return (*stores, found.tokenizer.digest, [row.ids.tolist() for row in rows])


def test_all_settings_are_tested() -> None:
    assert set(TOKENIZER) | {"joint"} == set(TokenizerConfig.model_fields)
    assert set(DATA) | set(EXAMPLES) | {"mix"} == set(DataConfig.model_fields)  # mix: see test_parents.py
    assert set(SAMPLE) | {"prompt"} == set(SampleConfig.model_fields)  # the prompt is the text that is continued


@pytest.mark.parametrize("name", TOKENIZER)
def test_every_tokenizer_setting_has_an_effect(folder: Path, name: str) -> None:
    base, value = TOKENIZER[name]
    assert outcome(folder, {}, base) != outcome(folder, {}, {**base, name: value})


@pytest.mark.parametrize("name", DATA)
def test_every_data_setting_has_an_effect(folder: Path, name: str) -> None:
    base, value = DATA[name]
    assert outcome(folder, base, {"kind": "bytes"}) != outcome(folder, {**base, name: value}, {"kind": "bytes"})


def examples(folder: Path, task: str, data: dict[str, Any], joint: bool = True) -> tuple[Any, ...]:
    """Return all results for examples: tokenizers, labels, the texts of both splits, and the rows of one step."""
    config = Config.from_dict(
        {
            "train": {"task": task, "batch": 40},
            "data": {"split": "random", **data},
            "model": {"context": 44, "shared_embedding": joint},
            "tokenizer": {"kind": "characters", "joint": joint},
        }
    )
    found = prepare_run_text(config, folder / "cache", lambda text: None)
    rows = make_task(config, found).rows(0)
    ids = [(row.ids if row.shifted else row.inputs).tolist() for row in rows]
    texts = [list(store.texts()) for store in (found.train, found.validation)]
    return found.tokenizer.digest, found.source_tokenizer.digest, found.labels, texts, ids


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_setting_of_examples_has_an_effect(folder: Path, name: str) -> None:
    task, base, value = EXAMPLES[name]
    assert examples(folder, task, base) != examples(folder, task, {**base, name: value})


def test_a_joint_vocabulary_is_shared_by_both_sides(folder: Path) -> None:
    base = EXAMPLES["target_column"][1]
    joint = examples(folder, "translate", base)
    apart = examples(folder, "translate", base, joint=False)
    assert joint[0] == joint[1]
    assert joint[0] != apart[0] != apart[1]


@pytest.mark.parametrize("name", SAMPLE)
def test_every_sample_setting_has_an_effect(folder: Path, name: str) -> None:
    tokenizer = prepare(
        RECORD_KINDS["lm"], DataConfig(source="book.txt"), TokenizerConfig(kind="characters"), folder / "cache"
    ).tokenizer
    config = Config.from_dict({"model": {"layers": 1, "width": 16, "heads": 2, "context": 32, "tied": False}})
    model = TextModel(build_model(config.model, tokenizer.vocab_size), tokenizer, config)
    base, value = SAMPLE[name]
    settings = SampleConfig(**{"tokens": 30, "temperature": 1.0, **base})
    before, after = (model.generate(["the"], each)[0] for each in (settings, settings.replace(**{name: value})))
    assert (before.text, before.ended, before.score) != (after.text, after.ended, after.score)
