"""The split is made before windows: training and validation share no text, and the split is reproducible."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source
from glassformer.text.split import clean_cut, split_documents
from glassformer.text.survey import kept_pieces, survey

LM = RECORD_KINDS["lm"]


def split(text: str, folder: Path, **changes: object) -> tuple[dict[str, list[str]], str]:
    """Return the documents of each split, and the note."""
    path = folder / "text.txt"
    path.write_bytes(text.encode("utf-8"))
    data = DataConfig(source=str(path), **changes)  # type: ignore[arg-type]
    sides: dict[str, list[str]] = defaultdict(list)
    open_text = {"train": "", "validation": ""}
    with open_source(LM, data, folder) as source:
        found = survey(source)
        plan = split_documents(found, data)
        for side, (piece,), _, last, _ in plan.split_pieces(kept_pieces(source, found, marks=plan.bucket >= 0)):
            open_text[side] += piece
            if last:
                sides[side].append(open_text[side])
                open_text[side] = ""
    assert open_text == {"train": "", "validation": ""}  # every document was ended
    return sides, plan.note


def lines(count: int, width: int = 10) -> str:
    return "".join(f"{number:0{width}d}\n" for number in range(count))


@pytest.mark.parametrize("block", [1, 7, 10_000])
def test_one_document_is_cut_at_its_end(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.text.reading.BLOCK", block)
    text = "".join(chr(0x41 + n % 50) for n in range(1003))
    sides, note = split(text, tmp_path, validation_fraction=0.1)
    assert sides == {"train": [text[:902]], "validation": [text[902:]]}  # int(1003 * 0.9)
    assert note == "validation: the end of the text"
    sides, _ = split(text, tmp_path, validation_fraction=0.1, validation_limit=13)
    assert sides == {"train": [text[:-13]], "validation": [text[-13:]]}


def test_the_usual_shakespeare_split_is_reproduced(real_text: Path, tmp_path: Path) -> None:
    text = (real_text / "shakespeare" / "input.txt").read_text(encoding="utf-8")
    sides, _ = split(text, tmp_path)
    assert (len(sides["train"][0]), len(sides["validation"][0])) == (1_003_854, 111_540)
    assert sides["train"][0] + sides["validation"][0] == text


def test_last_documents_are_held_out_whole(tmp_path: Path) -> None:
    sides, note = split(lines(100), tmp_path, document="line", validation_fraction=0.25)
    assert sides["train"] + sides["validation"] == lines(100).split()
    assert len(sides["validation"]) == 25
    assert note == "validation: the last documents"
    sides, _ = split(lines(100), tmp_path, document="line", validation_fraction=0.25, validation_limit=59)
    assert len(sides["validation"]) == 5  # 59 characters have room for five documents of ten


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**64 - 1),
    kinds=st.integers(2, 60),
    copies=st.integers(1, 4),
    fraction=st.sampled_from([0.05, 0.3]),
)
def test_random_split_keeps_equal_documents_together(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kinds: int, copies: int, fraction: float
) -> None:
    text = lines(kinds) * copies
    changes = {"document": "line", "split": "random", "seed": seed, "validation_fraction": fraction}
    folder = tmp_path_factory.mktemp("split")
    sides, note = split(text, folder, **changes)
    assert not set(sides["train"]) & set(sides["validation"])
    assert sorted(sides["train"] + sides["validation"]) == sorted(text.split())
    wanted = max(1, round(fraction * kinds * copies))
    assert wanted <= len(sides["validation"]) < max(wanted + copies, copies + 1)
    assert sides == split(text, folder, **changes)[0]
    assert note == f"validation: documents drawn at random, seed {seed}"


def test_random_split_follows_the_seed_and_keeps_documents_when_others_are_added(tmp_path: Path) -> None:
    def held(count: int, seed: int) -> set[str]:
        return set(split(lines(count), tmp_path, document="line", split="random", seed=seed)[0]["validation"])

    assert held(500, 0) != held(500, 1)
    assert len(held(500, 0) & held(510, 0)) >= 40  # of 50: adding documents moves few of the others


def test_random_split_respects_the_limit(tmp_path: Path) -> None:
    options = {"document": "line", "split": "random", "validation_fraction": 0.5}
    sides, _ = split(lines(100), tmp_path, validation_limit=99, **options)
    assert len(sides["validation"]) == 9
    assert len(sides["train"]) == 91
    text = "a" * 50 + "\n" + "b" * 50
    sides, _ = split(
        text, tmp_path, validation_limit=20, **options
    )  # each is too long: one is cut, and its rest is unused
    assert sides in ({"train": ["a" * 50], "validation": ["b" * 20]}, {"train": ["b" * 50], "validation": ["a" * 20]})


@pytest.mark.parametrize("block", [1, 11])
def test_random_split_of_documents_in_pieces(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"document": "line", "split": "random", "validation_fraction": 0.4, "validation_limit": 95}
    text = lines(10, width=30)
    whole, _ = split(text, tmp_path, **options)
    monkeypatch.setattr("glassformer.text.reading.BLOCK", block)
    monkeypatch.setattr("glassformer.text.documents.MAX_PENDING_CHARACTERS", 10)
    assert split(text, tmp_path, **options)[0] == whole
    assert sum(map(len, whole["validation"])) == 90


def test_random_split_of_one_document_holds_out_the_end(tmp_path: Path) -> None:
    sides, note = split("x" * 50, tmp_path, split="random")
    assert [len(sides["train"][0]), len(sides["validation"][0])] == [45, 5]
    assert "one document cannot be split at random" in note


@pytest.mark.parametrize(
    ("text", "changes", "problem"),
    [
        ("x", {}, "the text is too short to split: validation would get 1 of 1 character, training 0"),
        ("same\nsame\n", {"document": "line", "split": "random"}, "all 2 documents are the same text"),
    ],
)
def test_too_short_texts_are_refused(text: str, changes: dict[str, object], problem: str, tmp_path: Path) -> None:
    with pytest.raises(GlassError) as caught:
        split(text, tmp_path, **changes)
    assert problem in caught.value.problem


def test_splits_keep_letters_and_combining_marks_together(tmp_path: Path) -> None:
    assert clean_cut("ab\r\ncd", 3) == 2
    assert clean_cut("abcd", 4) == 4
    assert clean_cut("কি", 1) == 1 or clean_cut("কি", 1) == 0
    text = "ক্ষু" * 25  # k + virama + sh + u: one grapheme of four code points
    for size in range(1, 40):
        sides, _ = split(text, tmp_path, validation_limit=size, validation_fraction=0.5)
        assert len(sides["train"][0]) % 4 == 0
        assert sides["train"][0] + sides["validation"][0] == text
