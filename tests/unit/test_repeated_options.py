"""A setting that is given twice is said: only one of the values counts."""

from __future__ import annotations

import argparse

import pytest

from glassformer.app.cli.main import Parser
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


def test_settings_that_are_given_once_or_alike_are_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "train.steps=5", "--steps", "5", "--set", "model.layers=2", "--stop", "a")
    assert changes_from(parsed(*words)) == {"train.steps": "5", "model.layers": "2"}
    assert capsys.readouterr().err == ""
