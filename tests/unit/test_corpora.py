"""Generated corpora: reproducible, well formed, and with correct probabilities."""

from __future__ import annotations

import math
import re

import pytest

from glassformer.base.config import TASK_FACTS, Config
from glassformer.base.errors import GlassError
from glassformer.corpora import (
    CORPORA,
    corpus_names,
    find_corpus,
    find_labelled_corpus,
    find_pair_corpus,
    find_text_corpus,
)
from glassformer.corpora.noise import SYMBOLS, UniformSymbols
from glassformer.corpora.stories import GIRLS, NAMES, Stories

NAMES_OF_CORPORA = [
    "stories",
    "repeats",
    "refrains",
    "recall",
    "brackets",
    "copy",
    "reverse",
    "sort",
    "addition",
    "random",
    "agreement",
    "coreference",
    "pronouns-bn",
    "senses",
]
"""Corpora of documents, for task lm, except `numbers`, whose documents are rows of inputs and targets."""

# Document 0 of seed 7: what a seed gives must not change from one version, or machine, to the next.
FIRST = {
    "stories": "Once upon a time, a brave bear named Zoe wished for a red ha",
    "repeats": "AJ7BY61bK4LAJ7BY61bK4LAJ7BY61bK4LAJ7BY61bK4L",
    "refrains": "e upon a tie upon a tie upon a tie upon a ti",
    "recall": "AdYaKx|KxAdYa",
    "brackets": "()[][<<>>]",
    "copy": "ady=ady",
    "reverse": "ady=yda",
    "sort": "019=019",
    "addition": "0+9=9",
    "agreement": "Next to the poets, the dancer follows the author and sings.",
    "coreference": "On Monday the zebra did not cross the river because the zebra",
    "pronouns-bn": "আমি তোমাকে রোজ শহরে ধরি।",
    "senses": "Because of the flood, the old bank slid, Max said.",
    "random": "NAJ7BY61bK4L2r9ze3a8bXx3nNx8kNuqAeWjhklft3SU7Sv2LrDydPqgWXxM",
}


def test_the_table_has_every_corpus() -> None:
    assert corpus_names() == list(CORPORA)
    of_documents = [name for name, corpus in CORPORA.items() if "lm" in corpus.tasks]
    assert of_documents == [*NAMES_OF_CORPORA[:10], "numbers", *NAMES_OF_CORPORA[10:]]  # see tests/golden
    assert all(set(corpus.tasks) <= set(TASK_FACTS) for corpus in CORPORA.values())
    assert all(name == corpus.name for name, corpus in CORPORA.items())
    assert all(corpus.summary and "\n" not in corpus.summary for corpus in CORPORA.values())


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(GlassError) as caught:
        find_corpus("storys")
    assert caught.value.remedy == "Did you mean stories?"


@pytest.mark.parametrize("name", NAMES_OF_CORPORA)
def test_recommended_settings_are_valid_and_fit_a_document(name: str) -> None:
    corpus = find_text_corpus(name)
    config = Config().with_changes(corpus.recommended("lm"))
    assert config.tokenizer.kind in ("characters", "words")
    if config.data.windows == "documents":
        pattern = r" ?\w+|\s|[^\w\s]" if config.tokenizer.kind == "words" else r"[\s\S]"
        longest = max(len(re.findall(pattern, text)) for text in corpus.documents(500, seed=3))
        assert longest + 1 <= config.model.context  # and the end token


@pytest.mark.parametrize("name", NAMES_OF_CORPORA)
def test_document_i_depends_only_on_seed_and_i(name: str) -> None:
    corpus = find_text_corpus(name)
    few = list(corpus.documents(5, seed=11))
    many = list(corpus.documents(40, seed=11))
    assert few == many[:5]
    assert len(set(many)) > 20
    other = list(corpus.documents(40, seed=12))
    assert sum(a == b for a, b in zip(many, other, strict=True)) < 10
    assert all(text and "\n" not in text for text in many)


@pytest.mark.parametrize("name", NAMES_OF_CORPORA)
def test_a_seed_gives_the_same_text_in_every_version(name: str) -> None:
    assert next(find_text_corpus(name).documents(1, seed=7)).startswith(FIRST[name])


@pytest.mark.parametrize("name", [name for name in NAMES_OF_CORPORA if name != "refrains"])
def test_generated_documents_are_possible_and_corrupted_ones_are_not(name: str) -> None:
    corpus = find_text_corpus(name)
    for text in corpus.documents(30, seed=5):
        chance = corpus.log_probability(text)
        assert chance is not None
        assert -math.inf < chance < 0
        for spoilt in ("", text + " ", text + text[-1], text[:-1], "é" + text[1:], text + "\n"):
            assert corpus.log_probability(spoilt) == -math.inf, spoilt


def test_a_refrain_is_a_piece_of_its_story_four_times() -> None:
    stories, refrains = (list(find_text_corpus(name).documents(200, seed=4)) for name in ("stories", "refrains"))
    pieces = [text[: len(text) // 4] for text in refrains]
    assert [piece * 4 for piece in pieces] == refrains
    assert all(piece in story for piece, story in zip(pieces, stories, strict=True))
    assert {len(piece) for piece in pieces} == set(range(8, 25))
    assert find_text_corpus("refrains").entropy() is None
    assert find_text_corpus("refrains").log_probability(refrains[0]) is None


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("copy", "abc=abd"),
        ("copy", "abcdefghijklm=abcdefghijklm"),
        ("reverse", "abc=abc"),
        ("sort", "312=132"),
        ("sort", "abc=abc"),
        ("addition", "2+2=5"),
        ("addition", "02+2=4"),
        ("addition", "1000+1=1001"),
        ("recall", "AbCd|AbCe"),
        ("recall", "AbAb|AbAb"),
        ("recall", "AbCd|CdCd"),
        ("recall", "Ab|Ab"),
        ("brackets", "([)]"),
        ("brackets", "(("),
        ("brackets", "()" * 21),
        ("repeats", "abcdefgh" * 3),
        ("repeats", "abcdefgh" * 3 + "abcdefgx"),
        ("random", "a" * 999),
        ("stories", "Once upon a time, a brave fox named Mia wished for a red kite."),
    ],
)
def test_wrong_answers_have_no_probability(name: str, wrong: str) -> None:
    assert find_text_corpus(name).log_probability(wrong) == -math.inf


def test_small_lines_by_hand() -> None:
    assert find_text_corpus("copy").log_probability("ab=ab") == pytest.approx(-math.log(12 * 26**2))
    assert find_text_corpus("reverse").log_probability("ab=ba") == pytest.approx(-math.log(12 * 26**2))
    assert find_text_corpus("sort").log_probability("310=013") == pytest.approx(-math.log(12 * 10**3))
    assert find_text_corpus("addition").log_probability("0+99=99") == pytest.approx(-math.log(3 * 10 * 3 * 90))
    assert find_text_corpus("recall").log_probability("AbCd|CdAb") == pytest.approx(-math.log(7 * 26 * 25 * 26**2 * 2))
    assert find_text_corpus("brackets").log_probability("([]<>)") == pytest.approx(-math.log(20 * 5 * 4**3))
    assert find_text_corpus("repeats").log_probability("abcdefgh" * 4) == pytest.approx(-math.log(17 * 64**8))


def test_random_symbols_are_uniform() -> None:
    text = "".join(UniformSymbols().documents(60, seed=1))
    expected = len(text) / len(SYMBOLS)
    chi_square = sum((text.count(symbol) - expected) ** 2 / expected for symbol in SYMBOLS)
    assert len(SYMBOLS) == len(set(SYMBOLS)) == 64
    assert chi_square < 63 + 4 * math.sqrt(2 * 63)
    assert UniformSymbols().entropy() / 1000 == pytest.approx(math.log(64))


def test_stories_agree_in_articles_pronouns_and_wishes() -> None:
    """Agreement and memory: correct articles and pronouns, and the gift is the wish."""
    words: set[str] = set()
    for story in Stories().documents(400, seed=2):
        words.update(re.findall(r"\w+", story.lower()))
        count = len(story.split())
        assert 55 <= count <= 80
        assert not re.search(r"\b[Aa] (?=[aeiou]|honest)", story), story
        assert not re.search(r"\b[Aa]n (?![aeiou]|honest)", story), story
        named = [name for name in re.findall(r"\b[A-Z][a-z]+\b", story) if name in NAMES.split()]
        assert len(set(named)) == 2, story
        hero = re.search(r"(?:named|called) (\w+)|^(\w+) was", story)
        assert hero is not None
        girl = (hero[1] or hero[2]) in GIRLS.split()
        assert not re.search(r"\b(he|him) (set|to)\b" if girl else r"\b(she|her) (set|to)\b", story), story
        wished = re.search(r"(?:wished for|wanted|dreamed of|longed for) an? (\w+ \w+)\.", story)
        assert wished is not None
        assert story.count(wished[1]) == 2, story
    assert 150 <= len(words) <= 255


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("copy", "hqz", "hqz"),
        ("reverse", "hqz", "zqh"),
        ("reverse", "abcdefghijklmn", "nmlkjihgfedcba"),
        ("sort", "5302", "0235"),
        ("sort", "a1", None),
        ("copy", "", None),
        ("reverse", "a b", None),
    ],
)
def test_answers_of_string_pairs(name: str, source: str, target: str | None) -> None:
    assert find_pair_corpus(name).answer(source) == target


@pytest.mark.parametrize("name", ["copy", "reverse", "sort"])
def test_string_pairs(name: str) -> None:
    corpus = find_pair_corpus(name)
    pairs = list(corpus.pairs(2000, seed=4))
    assert pairs[:7] == list(corpus.pairs(7, seed=4))
    assert {len(source) for source, _ in pairs} == set(range(1, 11))
    assert all(corpus.answer(source) == target for source, target in pairs)
    assert Config().with_changes(corpus.recommended("translate")).model.context == 12
    assert "translate" in corpus.tasks
    assert corpus.tasks[0] == "lm"


def test_an_unsupported_request_names_suitable_corpora() -> None:
    with pytest.raises(GlassError) as caught:
        find_pair_corpus("stories")
    assert caught.value.problem == "the corpus stories has no pairs of source and target"
    assert {"copy", "reverse", "sort"} <= set(re.findall(r"[\w-]+", caught.value.remedy))
    with pytest.raises(GlassError, match="has no labels"):
        find_labelled_corpus("copy")
