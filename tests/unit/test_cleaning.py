"""Cleaning does not depend on how a document is cut into pieces; duplicates are found in every script."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.text.cleaning import cleaned
from glassformer.text.duplicates import BANDS, DuplicateFinder, Sketch
from glassformer.text.prepare import prepare
from glassformer.text.records import RECORD_KINDS

PIECES = st.lists(st.text(alphabet="ab \t\r\n\x00\x0c\x85\ufeff\u00a0\u200dক্ষ", max_size=9), min_size=1, max_size=6)
CASES = {
    "a\r\nb\rc": "a\nb\nc",
    "  a \t\nb\u00a0\r\n": "a\nb",
    "a\n\n\n \n\nb": "a\n\nb",
    "\ufeffa\x00b\x1b\ttab": "ab\ttab",
    "page\x0cnext\x0bline\x85end": "page\nnext\nline\nend",
    "র‍্যাব ক্ষুদ্র": "র‍্যাব ক্ষুদ্র",
    " \n\r\n": "",
}
BANGLA = "বিশ্ববিদ্যালয়ের ছাত্ররা নদীর ধারে বসে ক্ষুদ্র একটি গল্প পড়ছিল আর হাসছিল কারণ গল্পটি মজার ছিল"
CHINESE = "我們昨天下午在河邊的小公園裡看見一隻很老的狗和牠的主人慢慢地走過那座古老的石橋"


def clean(*parts: str) -> str:
    return "".join(text for text, _ in cleaned((part, index == len(parts) - 1) for index, part in enumerate(parts)))


@pytest.mark.parametrize("text", CASES)
def test_cleaning_removes_and_keeps_the_right_characters(text: str) -> None:
    assert clean(text) == CASES[text]


@given(PIECES)
def test_cleaning_does_not_depend_on_pieces(parts: list[str]) -> None:
    whole = clean("".join(parts))
    assert clean(*parts) == whole
    assert clean(whole) == whole


def bands(text: str, *more: str) -> bytes:
    sketch = Sketch()
    for part in (text, *more):
        sketch.read(part)
    return sketch.bands(7)


def shared(first: str, second: str) -> int:
    """Return the number of bands that two documents share."""
    pairs = (bands(text) for text in (first, second))
    return sum(a == b for a, b in zip(*(([k[i : i + 8] for i in range(0, 8 * BANDS, 8)]) for k in pairs), strict=True))


@given(st.integers(0, 90), st.integers(0, 90))
def test_a_sketch_does_not_depend_on_pieces(first: int, second: int) -> None:
    text = BANGLA + CHINESE
    (first, second) = sorted((first, second))
    assert bands(text[:first], text[first:second], text[second:]) == bands(text)


@pytest.mark.parametrize(
    "words", [BANGLA.split() * 4, list(CHINESE * 3), [f"w{i}" for i in range(90)]], ids=["bn", "zh", "en"]
)
def test_near_duplicates_share_a_band_and_strangers_share_none(words: list[str]) -> None:
    joint = "" if words[0] == CHINESE[0] else " "
    text = joint.join(words)
    changed = joint.join([*words[:-2], words[-2] + "x", "y"])
    other = random.Random(3).sample(words, len(words))
    assert shared(text, text.upper() + "!") == BANDS
    assert shared(text, changed) >= 1
    assert shared(text, joint.join(other)) == 0


def test_the_fraction_of_equal_bands_agrees_with_theory() -> None:
    """For sets with Jaccard similarity J, a band of 8 is equal with probability J^8."""
    agree = 0
    pairs = 150
    for number in range(pairs):
        words = [f"w{number}n{place}" for place in range(80)]  # 76 5-grams of words, of which 72 stay the same
        agree += shared(" ".join(words), " ".join([*words[:76], "a", "b", "c", "d"]))
    assert agree / (pairs * BANDS) == pytest.approx((72 / 80) ** 8, abs=0.05)


def test_later_documents_of_each_group_are_duplicates_also_transitively() -> None:
    keys = {0: (1, 10), 2: (2, 20), 3: (1, 30), 5: (3, 20), 6: (4, 40), 7: (3, 50), 9: (5, 60)}
    repeats = DuplicateFinder()
    for index, (mark, band) in keys.items():
        repeats.add(index, mark, band.to_bytes(8, "little") * BANDS)
    assert [index for index, bit in enumerate(repeats.duplicate_flags()) if bit] == [3, 5, 7]
    assert DuplicateFinder().duplicate_flags() == b""


def test_duplicates_are_removed_before_the_split(tmp_path: Path) -> None:
    lines = [" ".join(f"{word}{number}" for word in BANGLA.split()) for number in range(40)]
    near = f"({lines[3]}!)"
    (tmp_path / "t.txt").write_text("\n".join([*lines, lines[7], near, "two words"]), encoding="utf-8")
    made = {}
    for duplicates in ("keep", "exact", "near"):
        data = DataConfig(source=str(tmp_path / "t.txt"), document="line", min_words=3, duplicates=duplicates)
        found = prepare(RECORD_KINDS["lm"], data, TokenizerConfig(kind="bytes"), tmp_path / "cache")
        made[duplicates] = len(found.train) + len(found.validation)
        assert ("left out 1 duplicate document" in found.notes) == (duplicates == "exact"), found.notes
    assert made == {"keep": 42, "exact": 41, "near": 40}


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(GlassError("what", "do")))
    assert (error.problem, error.remedy, str(error)) == ("what", "do", "what\ndo")


def test_white_space_around_a_document_does_not_reach_the_next_one() -> None:
    parts = [("one \n ", True), (" two", False), ("  ", True), ("\t", True), (" three ", False), ("four \n", True)]
    assert list(cleaned(parts)) == [
        ("one", True),
        ("two", False),
        ("", True),
        ("", True),
        ("three", False),
        (" four", True),
    ]
