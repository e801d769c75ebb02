"""`longest_overlap` compared with a brute-force search for the longest common substring."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glassformer.evaluation import copying
from glassformer.evaluation.copying import EXCERPT, Overlap, longest_overlap

SHAKESPEARE = Path(__file__).parents[3] / "shared" / "data" / "shakespeare" / "input.txt"
LETTERS = st.text(alphabet="ab\nক\U0001f600\0", max_size=60)


def brute_force(sample: str, text: str) -> tuple[int, int]:
    """Return the length of the longest common substring, and its first position in `text`."""
    for length in range(min(len(sample), len(text)), 0, -1):
        windows = {sample[at : at + length] for at in range(len(sample) - length + 1)}
        for at in range(len(text) - length + 1):
            if text[at : at + length] in windows:
                return length, at
    return 0, 0


def check(overlap: Overlap | None, sample: str, text: str) -> None:
    """Check every field against its definition."""
    length, at = brute_force(sample, text)
    if length == 0:
        assert overlap is None
        return
    assert overlap == Overlap(
        length=length,
        text=text[at : at + length],
        position=at,
        line=text[:at].count("\n") + 1,
        context=text[max(0, at - EXCERPT) : at + length + EXCERPT],
    )
    assert overlap.text in sample


@settings(max_examples=150)
@given(sample=LETTERS, pieces=st.lists(LETTERS, max_size=8))
@example(sample="a" * 60, pieces=["a" * 29, "b", "a" * 31])
@example(sample="abba", pieces=["ab", "", "b", "a"])
def test_equals_brute_force(sample: str, pieces: list[str]) -> None:
    check(longest_overlap(sample, iter(pieces)), sample, "".join(pieces))


@settings(max_examples=80)
@given(
    sample=st.text(alphabet="abc\n", min_size=1, max_size=5),
    text=st.text(alphabet="abc\n", max_size=200),
    cut=st.integers(1, 40),
    block=st.integers(1, 30),
)
def test_overlaps_across_blocks(sample: str, text: str, cut: int, block: int) -> None:
    """With blocks of a few characters, nearly every overlap and its context cross a block boundary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "BLOCK", block)
        pieces = (text[at : at + cut] for at in range(0, len(text), cut))
        check(longest_overlap(sample, pieces), sample, text)


@settings(max_examples=25)
@given(seed=st.randoms(use_true_random=False), length=st.integers(1, 120), shift=st.integers(-119, 0))
def test_a_planted_overlap_across_a_real_block_boundary(seed: object, length: int, shift: int) -> None:
    """At the real block size, a planted text reaches or crosses the end of the first block."""
    from random import Random

    assert isinstance(seed, Random)
    planted = "".join(seed.choice("uvwxyz") for _ in range(length))
    at = copying.BLOCK + max(shift, -length + 1) - 1
    text = "." * at + planted + "," * 300
    overlap = longest_overlap("#" + planted + "#", [text])
    assert overlap is not None
    assert (overlap.length, overlap.position, overlap.text) == (length, at, planted)
    assert overlap.context == text[at - EXCERPT : at + length + EXCERPT]


def test_hash_collisions_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is correct even with a hash that is equal for all windows."""
    monkeypatch.setattr(
        copying.Powers, "window_hashes", lambda self, sums, length: sums[: len(sums) - length] * 0 + copying.BASE
    )
    sample = "the cat sat on the mat"
    text = "a cat sat in the hat; that cat sat on a rat"
    check(longest_overlap(sample, [text]), sample, text)


def test_nothing_to_find() -> None:
    assert longest_overlap("", ["abc"]) is None
    assert longest_overlap("abc", []) is None
    assert longest_overlap("abc", ["", "xyz"]) is None


def test_the_text_is_read_once_and_no_further_than_needed() -> None:
    read = 0

    def pieces() -> Iterator[str]:
        nonlocal read
        for _ in range(40):
            read += 1
            yield "word " * 10_000

    assert longest_overlap("word word", pieces()) == Overlap(9, "word word", 0, 1, ("word " * 12)[: 9 + EXCERPT])
    assert read < 20


def test_on_real_text() -> None:
    if not SHAKESPEARE.exists():
        pytest.skip(f"real text is not at {SHAKESPEARE}")
    text = SHAKESPEARE.read_text(encoding="utf-8")[:400_000]
    sample = text[262_000:262_300] + "§" + text[1000:1200]
    overlap = longest_overlap(sample, (text[at : at + 999] for at in range(0, len(text), 999)))
    assert overlap is not None
    assert (overlap.length, overlap.position) == (300, 262_000)
    assert overlap.line == text[:262_000].count("\n") + 1
    new = "It was the best of times, it was the worst of times, said the second gentleman to the first."
    overlap = longest_overlap(new, [text])
    match = SequenceMatcher(None, new, text, autojunk=False).find_longest_match()
    assert overlap is not None
    assert overlap.length == match.size
