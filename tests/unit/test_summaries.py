"""The summaries corpus: summaries follow from their stories alone, and no single sentence is a good summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import pytest

from glassformer.base.config import Config
from glassformer.corpora import find_pair_corpus
from glassformer.corpora.stories import GIRLS, NAMES, TRADES, TROUBLES
from glassformer.corpora.summaries import ENDS, USELESS, Summaries, summary_grammars
from glassformer.evaluation.rouge import rouge_of_each

PAIRS = list(Summaries().pairs(1500, seed=3))

STORY = (
    "Tom was a quiet frog from a small town. His best friend was Mia, an eager sailor. The sailor had always wanted a "
    "black hat, while the frog dreamed of an orange bell. They left for the market early one evening. Alas, they met a "
    "locked gate. A bottle was all that Tom had, and it was no good. At last they saw a hammer in the grass and opened "
    "it. At the market an old man gave both of them what they had longed for. The sailor hung it on the wall, but the "
    "frog hid it under the bed."
)
GIST = "Tom the frog wanted an orange bell, but they met a locked gate. A hammer helped them, and in the end he hid it under the bed."  # noqa: E501 - one line, as the corpus has it


def test_a_gist_by_hand() -> None:
    assert Summaries().answer(STORY) == GIST
    other = STORY.replace("Tom", "Zoe").replace("His best", "Her best")
    assert Summaries().answer(other) == GIST.replace("Tom", "Zoe").replace(" he ", " she ")
    other = STORY.replace(", but the frog hid it under the bed.", ".")
    assert Summaries().answer(other) is None
    assert Summaries().answer(STORY.replace("hammer", "candle")) is None  # a candle opens no gate
    assert Summaries().answer("") is None


def test_a_story_has_one_parse_and_gives_its_summary() -> None:
    for story, gist in PAIRS[:600]:
        assert Summaries().answer(story) == gist
        assert sum(len(grammar.slot_values(story)) for grammar in summary_grammars().values()) == 1


def test_gists_follow_from_the_text_by_an_independent_reading() -> None:
    tools = {tool: name for name, (found, _) in TROUBLES.items() for tool in found}
    for story, gist in PAIRS:
        match = re.match(r"(\w+) was a|.*?(?:named|called) (\w+)\.", story)
        assert match is not None
        hero = match[1] or match[2]
        kind = rf"[Tt]he {gist.split()[2]}"
        assert re.match(
            rf"{hero} was an? \w+ {gist.split()[2]}\b|.*? {gist.split()[2]} (?:named|called) {hero}\.", story
        )
        wish = re.search(
            rf"{kind} (?:had always wanted|dreamed of|wished for) (an? \w+ \w+)|and {kind} for (an? \w+ \w+)", story
        )
        assert wish is not None
        trouble = next(name for name in TROUBLES if name in story)
        tool = next(tool for tool in tools if re.search(rf"\b{tool} (?!named)", story) and tools[tool] == trouble)
        end = next(end for end in ENDS if re.search(f"{kind} {end}", story))
        he = "she" if hero in GIRLS.split() else "he"
        assert gist.startswith(f"{hero} the ")
        assert f"wanted {wish[1] or wish[2]}, but {trouble}. A" in gist
        assert re.search(rf"An? {tool} helped them, and in the end {he} {end}\.$", gist), (story, gist)


def test_every_fact_has_a_distractor() -> None:
    first: Counter[bool] = Counter()
    for story, gist in PAIRS:
        names = {name for name in NAMES.split() if re.search(rf"\b{name}\b", story)}
        hero = gist.split()[0]
        assert len(names) == 2
        assert not (names - {hero}) & set(gist.replace(",", " ").split())
        assert not any(re.search(rf"\b{word}\b", gist) for word in USELESS.split())
        assert sum(end in story for end in ENDS) == 2
        assert sum(end in gist for end in ENDS) == 1
        last = story.split(". ")[-1].lower()
        (trade,) = (trade for trade in TRADES.split() if f"the {trade}" in last)
        first[last.index(gist.split()[2]) < last.index(trade)] += 1
    assert min(first[True], first[False]) > 650  # half and half: the position of a fact does not tell whose it is


def rouge_l(texts: Sequence[str], gists: Sequence[str]) -> float:
    """Return the mean of ROUGE-L."""
    return fmean(each.rougeL.f for each in rouge_of_each(texts, gists))


def test_single_sentences_are_poor_summaries() -> None:
    """ROUGE-L is 1 for the reference: compare the first sentence, the third with the wish, and the whole story."""
    stories, gists = zip(*PAIRS[:300], strict=True)
    firsts = [story.split(". ")[0] + "." for story in stories]
    assert rouge_l(firsts, gists) < 0.3
    thirds = [" ".join(story.split(". ")[2:3]) + "." for story in stories]
    assert rouge_l(thirds, gists) < 0.4
    assert rouge_l(stories, gists) < 0.5
    assert rouge_l(gists, gists) == pytest.approx(1)


def test_lengths_and_repeatability() -> None:
    corpus = find_pair_corpus("summaries")
    assert list(corpus.pairs(5, seed=3)) == PAIRS[:5]
    assert list(corpus.pairs(5, seed=4)) != PAIRS[:5]
    assert all(40 <= len(story.split()) <= 120 for story, _ in PAIRS)
    assert all(gist.count(".") == 2 for _, gist in PAIRS)
    assert not any(mark in text for pair in PAIRS for text in pair for mark in "\n\t")
    task = {"train.task": "summarize", "model.family": "encoder-decoder"}
    config = Config().with_changes({**task, **corpus.recommended("summarize")})
    assert max(len(re.findall(r"\w+|[.,]", story)) for story, _ in PAIRS) < config.model.context
    assert len(set(PAIRS)) == len(PAIRS)
