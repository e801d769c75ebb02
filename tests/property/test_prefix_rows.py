"""Rows of prefixes and halves of documents: `data.windows` = prefixes and halves, `data.split` = rows."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from glassformer.app.cli.main import main
from glassformer.base.config import Config, DataConfig
from glassformer.base.errors import GlassError
from glassformer.runs.run_text import prepare_run_text
from glassformer.tasks.make import make_task
from glassformer.tasks.task import LanguageTask
from glassformer.text.rows import Row
from glassformer.text.tokenizers import Tokenizer
from tests.property.trainers import LINES

SHAKESPEARE = Path(__file__).parents[3] / "shared/data/shakespeare/input.txt"
CONTEXT = 7
TEXTS = [f"{LINES[i % 6][: 3 + i]} {i}" for i in range(23)]
"""Lines of 5 to 40 characters, all different."""


def task_of(folder: Path, **data: object) -> LanguageTask:
    """Return the task of a language model on the lines of a file, with bytes as tokens."""
    (folder / "lines.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    sections = {
        "data": {"source": str(folder / "lines.txt"), "document": "line", **data},
        "model": {"context": CONTEXT},
        "tokenizer": {"kind": "bytes"},
        "train": {"batch": 5},
    }
    config = Config.from_dict(sections)
    task = make_task(config, prepare_run_text(config, folder / "cache", lambda text: None))
    assert isinstance(task, LanguageTask)
    return task


def text_of(task: LanguageTask, row: Row) -> tuple[str, str]:
    """Return the inputs of a row and the token that contributes to the loss, as text."""
    assert row.loss_mask is not None
    assert row.loss_mask.tolist() == [False] * (len(row.inputs) - 1) + [True]
    return task.tokenizer.decode(row.inputs), task.tokenizer.decode(row.targets[-1:])


def epoch(task: LanguageTask) -> list[Row]:
    """Return the rows of the steps of one epoch, without rows of the next."""
    count = round(task.steps_per_epoch * 5)
    return [row for step in range(-(-count // 5)) for row in task.rows(step)][:count]


def all_prefixes(texts: list[str]) -> list[tuple[str, str]]:
    """Return the first 1 to `CONTEXT` characters of each text, and the next character."""
    return [(text[:end], text[end]) for text in texts for end in range(1, min(CONTEXT, len(text) - 1) + 1)]


def test_each_prefix_predicts_the_next_token_only(tmp_path: Path) -> None:
    task = task_of(tmp_path, windows="prefixes", split="random", validation_fraction=0.3)
    splits = [store.tokens["text"] for store in (task.data.train, task.data.validation)]
    train, validation = (
        [task.tokenizer.decode(store.document(index)) for index in range(store.documents)] for store in splits
    )
    assert sorted(train + validation) == sorted(TEXTS)
    assert sorted(text_of(task, row) for row in epoch(task)) == sorted(all_prefixes(train))
    held_out = [text_of(task, row) for row in task.held_out(None)]
    assert held_out == all_prefixes(validation)
    assert task.validation_bytes == len(held_out)


def test_rows_of_the_whole_text_are_split_at_random(tmp_path: Path) -> None:
    task = task_of(tmp_path, windows="prefixes", split="rows", validation_fraction=0.2)
    train = [text_of(task, row) for row in epoch(task)]
    held_out = [text_of(task, row) for row in task.held_out(None)]
    assert sorted(train + held_out) == sorted(all_prefixes(TEXTS))
    assert len(held_out) == round(0.2 * len(train + held_out))
    assert task.validation_bytes == len(held_out)
    assert {len(text) for text, _ in held_out} == set(range(1, CONTEXT + 1))
    assert [text_of(task, row) for row in task.held_out(40)] != held_out[: len(task.held_out(40))]  # spread evenly
    assert "memorization" in " ".join(task.data.notes)
    other = task_of(tmp_path, windows="prefixes", split="rows", validation_fraction=0.2, seed=1)
    assert [text_of(other, row) for row in other.held_out(None)] != held_out


def test_halves_are_inputs_and_targets(tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("abcABC\nxyXY\nabcdefgABCDEFG\nqQ\n" * 3, encoding="utf-8")
    data = {"source": str(tmp_path / "pairs.txt"), "document": "line", "windows": "halves", "split": "random"}
    sections = {"data": data, "model": {"context": CONTEXT}, "tokenizer": {"kind": "characters"}}
    config = Config.from_dict(sections)
    task = make_task(config, prepare_run_text(config, tmp_path / "cache", lambda text: None))
    assert isinstance(task, LanguageTask)
    for row in [*task.rows(0), *task.held_out(None)]:
        assert task.tokenizer.decode(row.targets) == task.tokenizer.decode(row.inputs).upper()
        assert row.loss_mask is None
    assert task.validation_bytes is None


@pytest.mark.parametrize("text", ["abc\n", "abcdefghABCDEFGH\n"])
def test_a_document_without_two_halves_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text(text * 9, encoding="utf-8")
    data = {"source": str(tmp_path / "pairs.txt"), "document": "line", "windows": "halves"}
    sections = {"data": data, "model": {"context": CONTEXT}, "tokenizer": {"kind": "characters"}}
    config = Config.from_dict(sections)
    task = make_task(config, prepare_run_text(config, tmp_path / "cache", lambda text: None))
    with pytest.raises(GlassError, match="cannot be cut in two halves") as caught:
        task.rows(0)
    assert "2, 4, ... 14 tokens" in caught.value.remedy


def test_rows_are_split_only_if_they_are_prefixes() -> None:
    with pytest.raises(ValueError, match=r"split = rows needs windows = prefixes"):
        DataConfig(split="rows", windows="documents")
    with pytest.raises(GlassError, match=r"prefixes has no meaning for train\.task = masked"):
        Config.from_dict({"data": {"windows": "prefixes"}, "train": {"task": "masked"}})


@pytest.mark.thorough
def test_a_run_on_prefixes_is_evaluated_on_its_rows_and_on_another_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("\n".join(f"{LINES[i % 6]} {i}" for i in range(200)), encoding="utf-8")
    small = "--steps 3 --set train.threads=1 --set train.batch=8 --set train.evaluate_every=3 --set sample.tokens=3"
    assert main(["train", "lines.txt", "--recipe", "tutorial-e3", "--out", "run", *small.split(), "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert main(["evaluate", "run", "--json"]) == 0
    own = json.loads(capsys.readouterr().out)
    assert own["loss"] == pytest.approx(trained["loss"], abs=1e-4)
    assert own["bits_per_byte"] == pytest.approx(trained["bits_per_byte"], abs=1e-4)
    assert not own["baselines"]
    Path("other.txt").write_text("\n".join(f"{i} {LINES[i % 6]}" for i in range(9)), encoding="utf-8")
    assert main(["evaluate", "run", "other.txt", "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    tokenizer = Tokenizer.load(Path("run/tokenizer.json"))
    lengths = [len(tokenizer.encode(line)) for line in Path("other.txt").read_text(encoding="utf-8").splitlines()]
    assert other["tokens"] == sum(min(length - 1, 15) for length in lengths)  # all rows, not a fifth of them
    assert main(["verify", "run"]) == 0


@pytest.mark.thorough
def test_the_recipe_has_the_lines_and_the_model_of_the_assignment(tmp_path: Path) -> None:
    if not SHAKESPEARE.is_file():
        pytest.skip(f"{SHAKESPEARE} is missing")
    from glassformer.base.recipes import load_recipe
    from glassformer.model.count import count_model

    settings = load_recipe("tutorial-e3").settings
    config = Config.from_dict({**settings, "data": {**settings["data"], "source": str(SHAKESPEARE)}})
    data = prepare_run_text(config, tmp_path, lambda text: None)
    assert data.train.tokens["text"].documents == 22_830
    assert sum(part.parameters for part in count_model(config.model, data.tokenizer.vocab_size)) == 360_564
    task = make_task(config, data)
    n_train = round(task.steps_per_epoch * 64)
    lengths = np.minimum(data.train.tokens["text"].lengths - 1, 15)
    assert n_train + len(task.held_out(None)) == int(lengths.sum())
    assert math.isclose(len(task.held_out(None)) / int(lengths.sum()), 0.2, abs_tol=1e-5)
