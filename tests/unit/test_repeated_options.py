"""A setting that is given twice is said: only one of the values counts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from glassformer.app.cli.main import Parser, main
from glassformer.app.cli.run_arguments import add_run_arguments, given_settings
from glassformer.app.cli.settings import add_setting_flags, add_short_flags, changes_from


def parsed(*words: str) -> argparse.Namespace:
    """Parse words with the options of settings and `--stop`."""
    parser = Parser(prog="glass train")
    add_setting_flags(parser, ["model", "train"])
    add_short_flags(parser)
    parser.add_argument("--stop")
    return parser.parse_all(words)


@pytest.mark.parametrize(
    ("words", "key", "value", "note"),
    [
        ("--steps 5 --steps 9", "train.steps", "9", "--steps was given 2 times: only the last value is used"),
        ("--steps=5 --steps=9", "train.steps", "9", "--steps was given 2 times: only the last value is used"),
        ("--set train.steps=5 --steps 9", "train.steps", "9", "train.steps was given as 5 and as 9: 9 is used"),
        ("--set train.steps=5 --set train.steps=9", "train.steps", "9", "train.steps was given as 5 and as 9"),
        ("--train.steps 5 --steps 9", "train.steps", "9", "train.steps was given as 5 and as 9: 9 is used"),
        ("--set model.layers=5 --model.layers 9", "model.layers", "9", "model.layers was given as 5 and as 9"),
        ("--stop a --stop b", None, None, "--stop was given 2 times: only the last value is used"),
    ],
)
def test_a_setting_with_two_values_is_said(
    words: str, key: str | None, value: str | None, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = changes_from(parsed(*words.split()))
    assert changes.get(key or "") == value
    assert capsys.readouterr().err.startswith(note)


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("train no.txt --set data.source=b.txt", "data.source was given as b.txt and as no.txt: no.txt is used"),
        ("data look no.txt --set data.source=b.txt", "data.source was given as b.txt and as no.txt: no.txt is used"),
        ("data look no.txt --task lm --set train.task=masked", "train.task was given as masked and as lm: lm is used"),
        ("data look no.txt --seed 5 --data.seed 6", "data.seed was given as 6 and as 5: 5 is used"),
        ("data show stories --size 2 --data.size 1", "data.size was given as 1 and as 2: 2 is used"),
        ("evaluate no --seed 1 --sample.seed 2", "sample.seed was given as 2 and as 1: 1 is used"),
        (
            "train no.txt --chat-template t.jinja --set data.chat_template=x",
            "data.chat_template was given as x and as a b: a b is used",
        ),
    ],
)
def test_a_setting_that_another_argument_overrides_is_said(
    words: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.jinja").write_text("a\nb", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    main(words.split())
    assert capsys.readouterr().err.startswith(f"{note}\n")


def test_a_file_that_is_named_twice_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="glass train")
    add_run_arguments(parser)
    assert given_settings(parser.parse_all(["a.txt", "--set", "data.source=a.txt"])) == {"data.source": '"a.txt"'}
    assert capsys.readouterr().err == ""


def test_settings_that_are_given_once_or_alike_are_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "train.steps=5", "--steps", "5", "--set", "model.layers=2", "--stop", "a")
    assert changes_from(parsed(*words)) == {"train.steps": "5", "model.layers": "2"}
    assert capsys.readouterr().err == ""
