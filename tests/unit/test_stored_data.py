"""Data prepared by an earlier version has the same folder name, files and notes as data prepared now, and is reused."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from glassformer.text import prepare
from tests.unit.stored_data import CASES, EXPECTED, stored, write_sources

QUICK = ("lm random", "lm table", "masked", "classify own", "translate table", "summarize")


@pytest.mark.parametrize("cases", [QUICK, pytest.param(tuple(CASES), marks=pytest.mark.thorough)])
def test_prepared_data_equals_that_of_earlier_versions_byte_for_byte(
    cases: Collection[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    found = stored(tmp_path / "cache", cases)
    assert {name.partition(",")[0] for name in found} == set(cases)
    for name, facts in found.items():
        assert facts == expected[name], name
    monkeypatch.setattr(prepare, "write_prepared", None)  # nothing is made a second time
    assert stored(tmp_path / "cache", cases) == found
