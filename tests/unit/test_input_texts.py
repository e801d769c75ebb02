"""Texts of a table that a trained model is applied to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from glassformer.app.cli.texts import texts_of
from glassformer.base.config import Config, DataConfig, Task
from glassformer.base.errors import GlassError
from glassformer.text.input_texts import texts_of_table
from glassformer.text.records import RECORD_KINDS
from tests.unit.example_files import lines

LONG = ("a first text of some words", "and a second one, with more words")


def texts(task: Task, rows: Sequence[Sequence[str]], named: str | None = None, **settings: str) -> list[str]:
    """Return the texts that a model of this task reads from a CSV table."""
    content = lines(",".join(f'"{cell}"' for cell in row) for row in rows)
    data = DataConfig(**settings)  # type: ignore[arg-type]
    return texts_of_table(lambda: iter([content]), "csv", "t.csv", RECORD_KINDS[task], data, named)[0]


@pytest.mark.parametrize("task", RECORD_KINDS)
def test_the_column_of_texts_is_read(task: Task) -> None:
    for names, rows in {
        ("text",): [(text,) for text in LONG],
        ("id", "text"): [(str(n), text) for n, text in enumerate(LONG)],
        ("label", "text"): [("spam", LONG[0]), ("ham", LONG[1])],
    }.items():
        if task in ("translate", "summarize", "chat") and names[0] == "label":
            continue  # the label would be the source
        assert texts(task, [names, *rows]) == list(LONG)
        assert texts(task, [names, *rows], "text", column="body") == list(LONG)
        assert texts(task, [names, *rows], column="text") == list(LONG)
        assert texts(task, [names, *rows], column="a column of the training data") == list(LONG)
    with pytest.raises(GlassError, match="no column 'body'"):
        texts(task, [("id", "text"), *enumerate(LONG)], "body")  # type: ignore[list-item]


def test_sources_and_their_targets_are_read() -> None:
    rows = [("answer", "question"), ("four of it", "what is two and two"), ("six of it", "what is three and three")]
    for task in ("translate", "summarize", "chat"):
        assert texts(task, rows) == ["what is two and two", "what is three and three"]
    assert texts("classify", [("a", "b"), *rows[1:]], column="b,a")[0] == "what is two and two\nfour of it"
    assert texts("translate", [("en", "de"), ("go", "los"), ("run", "lauf")], header="yes") == ["go", "run"]
    assert texts("classify", [("spam", LONG[0]), ("ham", LONG[1])], column="2") == list(LONG)  # without a header


def test_a_file_in_the_encoding_of_the_training_data_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    russian = ["привет всем тут", "зима была холодной"]
    path = tmp_path / "t.csv"
    for codec, written in (("cp1251", "cp1251"), ("cp1251", "utf-8"), ("cp1252", "cp1252"), ("cp1250", "cp1250")):
        text = russian if written in ("cp1251", "utf-8") else ["ein Café im Süden", "das ist nicht übel"]
        path.write_bytes(("text\n" + lines(text)).encode(written))
        config = Config.from_dict({"train": {"task": "classify"}, "data": {"source": "t.csv", "encoding": codec}})
        assert texts_of(path, config, {}) == text
    assert "Windows-1252" not in capsys.readouterr().err
    path.write_bytes(("text\n" + lines(russian)).encode("cp1251"))
    with pytest.raises(GlassError, match="is not valid UTF-8"):
        texts_of(path, Config.from_dict({"train": {"task": "classify"}, "data": {"source": "t.csv"}}), {})


def test_a_question_is_formed_as_in_training() -> None:
    names = ("id", "instruction", "input", "output", "system")
    rows = [names, ("1", "the old dog", "red tree", "it sleeps", "be brief"), ("2", "a cat", "", "it runs", "be brief")]
    questions = ["the old dog\nred tree", "a cat"]
    assert texts("chat", rows) == questions
    assert texts("chat", rows, "instruction,input") == questions
    assert texts("chat", rows, column="instruction,input") == questions
    assert texts("chat", rows, "instruction") == ["the old dog", "a cat"]
    assert texts("chat", [row[:3] for row in rows]) == questions  # without answers
    content = lines(",".join(row) for row in rows)
    _, notes = texts_of_table(lambda: iter([content]), "csv", "t.csv", RECORD_KINDS["chat"], DataConfig(), None)
    assert notes[0].startswith("t.csv: columns instruction, input read as input; columns that are not read: system")


def test_conversations_are_not_questions() -> None:
    talk = '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]'.replace('"', '""')
    with pytest.raises(GlassError, match=r"column messages of t.csv has conversations, not questions"):
        texts("chat", [("id", "messages"), ("1", talk), ("2", talk)])
