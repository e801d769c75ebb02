"""Verbatim matches with the training text, compared with brute force over all substrings."""

from __future__ import annotations

import random
import string
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.evaluation import copying as meter
from glassformer.evaluation.copying import EXCERPT, cover, longest_overlap, matches

LETTERS = st.text(alphabet="ab\nক\U0001f600\0", max_size=50)


def brute_force(sample: str, text: str, least: int) -> set[tuple[int, int]]:
    """Return (start, length) of all maximal substrings of the sample that occur in the text."""
    inside = {
        (start, end)
        for start in range(len(sample))
        for end in range(start + least, len(sample) + 1)
        if sample[start:end] in text
    }
    return {(start, end - start) for start, end in inside if not inside & {(start - 1, end), (start, end + 1)}}


@pytest.mark.thorough
@given(LETTERS, st.lists(LETTERS, max_size=4), st.integers(1, 5), st.integers(1, 40))
@settings(max_examples=300)
def test_all_maximal_matches_are_found(sample: str, pieces: list[str], least: int, block: int) -> None:
    text = "".join(pieces)
    before = meter.BLOCK
    meter.BLOCK = block  # blocks are much smaller than a match, so that matches cross block boundaries
    try:
        found = matches(sample, pieces, least)
    finally:
        meter.BLOCK = before
    assert {(each.start, each.length) for each in found} == brute_force(sample, text, least)
    for each in found:
        end = each.position + each.length
        assert text[each.position : end] == sample[each.start : each.start + each.length]
        assert each.before == text[max(0, each.position - EXCERPT) : each.position]
        assert text[end:].startswith(each.after)
    longest = longest_overlap(sample, pieces)
    most = 0 if longest is None or longest.length < least else longest.length
    assert max((each.length for each in found), default=0) == most == max(cover(len(sample), found), default=0)


def test_cover_gives_each_character_its_longest_match() -> None:
    found = matches("abcdeXbcdefg", ["abcde bcdefg"], 3)
    assert [(each.start, each.length) for each in found] == [(0, 5), (6, 6)]
    assert cover(12, found) == [5, 5, 5, 5, 5, 0, 6, 6, 6, 6, 6, 6]


class Counted(list[int]):
    """A list that counts its reads."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return super().__getitem__(place)


def test_a_repetitive_text_takes_linear_time() -> None:
    """The states of the text's automaton form one long chain; following the chain from each state would take quadratic
    time."""
    automaton = meter._Automaton("a" * 3_000)
    automaton.record_matches("b" + "a" * 9, 0, 10, 0, 4)
    automaton.link = Counted(automaton.link)
    found = automaton.matches(4)
    assert (found[0].length, found[0].position) == (9, 1)
    assert automaton.link.reads <= 3 * len(automaton.next)


def test_a_long_copy_takes_linear_memory() -> None:
    """Each character of the copy ends a match as long as the text so far; storing all these matches would be
    quadratic."""
    text = "".join(random.Random(5).choices(string.ascii_lowercase, k=6_000))
    tracemalloc.start()
    found = matches(text, ["some words before " + text + " and some after"], 20)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(match.start, match.length, match.before, match.after) for match in found] == [
        (0, len(text), "some words before ", " and some after")
    ]
    assert most < 12e6  # the automaton itself; all single matches would take 18 MB
