"""The copy meter counts what exceeds held-out text: about nothing of held-out text, all of a copied passage."""

from __future__ import annotations

import random

import pytest

from glassformer.evaluation.copying import PASSAGE, PASSAGES, copy_meter
from tests.conftest import REAL_TEXT

ENGLISH = "the old king said to his young queen that no ship would ever come back from that sea"
BANGLA = "আমি তুমি সে আমরা নদী আকাশ গান গাই দেখি ভালো বাসি রাত দিন ফুল পাখি তীরে ঘরে মনে"
CHINESE = "春眠不觉晓处处闻啼鸟夜来风雨声花落知多少床前明月光疑是地上霜"
WORDS = {
    "english": (ENGLISH.split(), " ", "."),
    "bangla": (BANGLA.split(), " ", "।"),
    "chinese": ([*CHINESE], "", "。"),
}


def written(kind: str, sentences: int, seed: int) -> str:
    """Return random sentences of a small vocabulary, which share many short passages."""
    words, space, stop = WORDS[kind]
    draw = random.Random(seed)
    return space.join(space.join(draw.choices(words, k=draw.randint(5, 9))) + stop for _ in range(sentences))


@pytest.mark.parametrize("kind", WORDS)
def test_held_out_text_is_not_copied_and_a_passage_is(kind: str) -> None:
    training, held_out, new = (written(kind, sentences, seed) for sentences, seed in ((900, 0), (150, 1), (20, 2)))
    pieces = [training[:999], training[999:]]
    other = copy_meter(new, pieces, [held_out], least=4)
    assert other.share <= 0.3
    assert other.copied < 0.15
    assert other.held_out_share <= 0.05
    start = training.index(WORDS[kind][2], 3_000) + 1
    passage = training[start : start + 500]
    copied = copy_meter(passage, pieces, [held_out], least=4)
    assert copied.copied > 0.95
    assert copied.least == other.least
    half = copy_meter(new[:500] + passage, pieces, [held_out], least=4)
    assert half.copied == pytest.approx(len(passage) / len(new[:500] + passage), abs=0.1)
    for match in half.matches:
        whole = (new[:500] + passage)[match.start : match.start + match.length]
        assert training[match.position : match.position + match.length] == whole


@pytest.mark.parametrize("name", ["shakespeare/input.txt", "bangla/tagore.txt", "chinese/tang.txt", "english/kjv.txt"])
@pytest.mark.thorough
def test_real_texts(name: str) -> None:
    path = REAL_TEXT / name
    if not path.exists():
        pytest.skip(f"real text is not at {REAL_TEXT}")
    text = path.read_text(encoding="utf-8")[:400_000]
    training, held_out, new = text[:-40_000], text[-40_000:-20_000], text[-20_000:]
    excess = [copy_meter(new[at : at + 1_000], [training], [held_out]).copied for at in range(0, 8_000, 1_000)]
    assert sum(excess) / len(excess) < 0.06
    assert copy_meter(training[50_000:51_000], [training], [held_out]).copied > 0.95


def test_parts_of_words_are_not_counted() -> None:
    found = copy_meter("one concatenated string of others", ["a concatenation of nothing; the cat sat"], [], least=3)
    assert found.matches == []
    assert found.share == 0
    found = copy_meter("we saw the cat sit", ["a dog saw the cat sat down"], [], least=3)
    assert [(match.start, match.length, match.position) for match in found.matches] == [(3, 11, 6)]
    assert found.matches[0].before.endswith("dog ")
    assert found.matches[0].after.startswith(" sat")
    assert copy_meter("cat", ["concat cats"], [], least=3).matches == []


def test_graphemes_are_not_split() -> None:
    """The training text continues the last letter with a vowel sign, so its last word is another one."""
    assert [each.length for each in copy_meter("নদীর ত", ["নদীর তীর"], [], least=2).matches] == [4]


def test_a_text_that_repeats_itself_everywhere_cannot_be_called_copied() -> None:
    text = "all the same words again and again. " * 300
    found = copy_meter(text[:360], [text], [text])
    assert found.copied == 0
    assert found.held_out_characters == PASSAGES * PASSAGE + PASSAGES - 1
    assert found.longest == found.matches[0].length if found.matches else found.longest >= 300


def test_without_held_out_text_all_matches_count() -> None:
    found = copy_meter("one two three four", ["zero one two three five"], [], least=5)
    assert (found.held_out_characters, found.held_out_share, found.least) == (0, 0.0, 5)
    assert found.copied == found.share == len("one two three") / len("one two three four")


def test_an_empty_sample_is_not_copied() -> None:
    assert copy_meter("", ["some text"], ["other text"]).copied == 0.0
