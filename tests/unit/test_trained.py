"""Trained runs that tests share are made once, copied completely, and made again after any change."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import trained as module
from tests.trained import DAY, digest_of, trained


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Use an empty store, and return the list of folders that `make` fills."""
    monkeypatch.setattr(module, "STORE", tmp_path / "store")
    return []


def maker(made: list[Path]) -> Callable[[Path], object]:
    """Return a `make` that writes a run with an encoded text, and counts its calls."""

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "runs" / "book").mkdir(parents=True)
        (folder / "runs" / ".tokens").mkdir()
        facts = {"data": {"tokens": str(folder / "runs" / ".tokens" / "1234")}}
        (folder / "runs" / "book" / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")

    return make


def test_a_folder_is_made_once_and_copies_refer_to_their_own_tokens(tmp_path: Path, made: list[Path]) -> None:
    for name in ("first", "second"):
        folder = trained(tmp_path / name, "book", {"steps": 3}, maker(made))
        facts = json.loads((folder / "runs" / "book" / "manifest.json").read_text(encoding="utf-8"))
        assert facts["data"]["tokens"] == str(folder / "runs" / ".tokens" / "1234")
        (folder / "runs" / "book" / "manifest.json").write_text("spoilt", encoding="utf-8")
    assert len(made) == 1


def test_other_settings_or_another_package_make_a_new_run(
    tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "a", "book", {"steps": 3}, maker(made))
    trained(tmp_path / "b", "book", {"steps": 4}, maker(made))
    monkeypatch.setattr(module, "digest", lambda: "another package")
    trained(tmp_path / "c", "book", {"steps": 3}, maker(made))
    assert len(made) == 3


def test_a_changed_a_new_and_a_renamed_file_change_the_hash(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1", encoding="utf-8")
    found = {digest_of([file], ["linux"]), digest_of([file], ["windows"])}
    file.write_text("x = 2", encoding="utf-8")
    found.add(digest_of([file], ["linux"]))
    found.add(digest_of([file.rename(tmp_path / "b.py")], ["linux"]))
    assert len(found) == 4


def test_an_incomplete_folder_is_made_again(tmp_path: Path, made: list[Path]) -> None:
    def broken(folder: Path) -> None:
        maker(made)(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "a", "book", {}, broken)
    trained(tmp_path / "b", "book", {}, maker(made))
    assert len(made) == 2


def test_concurrent_workers_wait_for_one_of_them(tmp_path: Path, made: list[Path]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: trained(tmp_path / name, "book", {}, maker(made)), "abcd"))
    assert len(made) == 1


def test_old_folders_are_deleted(tmp_path: Path, made: list[Path]) -> None:
    trained(tmp_path / "a", "book", {"steps": 3}, maker(made))
    whole = made[0].parent / "whole"
    os.utime(whole, (whole.stat().st_atime, whole.stat().st_mtime - DAY - 60))
    trained(tmp_path / "b", "book", {"steps": 4}, maker(made))
    assert not made[0].exists()
    assert made[1].exists()
