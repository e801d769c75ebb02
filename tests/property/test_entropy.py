"""Closed-form entropies compared with probabilities, and probabilities compared with enumeration."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.corpora import CORPORA, Corpus, find_text_corpus
from glassformer.corpora.addition import Addition
from glassformer.corpora.grammar import Grammar, Mention, Piece, Slot, Word, Wording, free, other_than, sentence
from glassformer.corpora.noise import Repeats
from glassformer.corpora.recall import Recall
from glassformer.corpora.stories import Stories, story_grammar
from glassformer.corpora.strings import StringTask


def moments(corpus: Corpus, size: int) -> tuple[float, float, float]:
    """Return the mean of -log p over documents, its standard error, and the mean length."""
    costs = []
    lengths = []
    for text in corpus.documents(size, seed=2024):
        chance = corpus.log_probability(text)
        assert chance is not None
        costs.append(-chance)
        lengths.append(len(text))
    mean = math.fsum(costs) / size
    error = math.sqrt(math.fsum((cost - mean) ** 2 for cost in costs) / (size - 1) / size)
    return mean, error, sum(lengths) / size


ELSEWHERE = ("stories", "refrains", "numbers")  # numbers have no entropy, because their inputs are not predicted
KNOWN = [name for name, corpus in CORPORA.items() if isinstance(corpus, Corpus) and name not in ELSEWHERE]


@pytest.mark.thorough
@pytest.mark.parametrize("name", KNOWN)
def test_entropy_is_the_mean_cost_of_a_document(name: str) -> None:
    corpus = find_text_corpus(name)
    size = 50 if name == "random" else 3000
    mean, error, length = moments(corpus, size)
    entropy = corpus.entropy()
    characters = corpus.mean_characters()
    assert entropy is not None
    assert characters is not None
    assert abs(mean - entropy) <= 4 * error + 1e-9
    assert abs(length - characters) <= 0.05 * characters


@pytest.mark.thorough
def test_the_entropy_of_stories_agrees_with_20_000_samples() -> None:
    stories = Stories()
    mean, error, length = moments(stories, 20_000)
    assert error > 0.001  # the costs differ, or this test would show little
    assert abs(mean - stories.entropy()) < 3 * error
    assert abs(length - stories.mean_characters()) < 0.5


def tasks() -> list[tuple[Corpus, list[str]]]:
    """Return small versions of two line corpora, with all their lines."""
    small = StringTask("tiny", "", lambda text: text[::-1], alphabet="ab", longest=3)
    strings = ["".join(s) for n in (1, 2, 3) for s in words("ab", n)]
    addition = [f"{a}+{b}={a + b}" for a in range(100) for b in range(100)]
    return [(small, [f"{s}={s[::-1]}" for s in strings]), (Addition(digits=2), addition)]


def words(alphabet: str, length: int) -> Iterator[str]:
    if length == 0:
        yield ""
        return
    for rest in words(alphabet, length - 1):
        yield from (letter + rest for letter in alphabet)


@pytest.mark.parametrize(("corpus", "lines"), tasks(), ids=["string", "addition"])
def test_probabilities_of_all_lines_sum_to_one(corpus: Corpus, lines: list[str]) -> None:
    chances = [corpus.log_probability(line) or 0.0 for line in lines]
    entropy = corpus.entropy()
    characters = corpus.mean_characters()
    assert math.fsum(map(math.exp, chances)) == pytest.approx(1, abs=1e-12)
    assert -math.fsum(math.exp(c) * c for c in chances) == pytest.approx(entropy, abs=1e-10)
    mean = math.fsum(math.exp(c) * len(line) for c, line in zip(chances, lines, strict=True))
    assert mean == pytest.approx(characters, abs=1e-10)


def test_counting_arguments_of_recall_and_repeats() -> None:
    """The number of equally likely lines of a size times their probability, summed over all sizes, is 1."""
    recall = Recall()
    total = 0.0
    for pairs in range(recall.fewest, recall.most + 1):
        line = "".join(key + "x" for key in "ABCDEFGHIJ"[:pairs])
        lines = math.perm(26, pairs) * 26**pairs * math.factorial(pairs)
        total += lines * math.exp(recall.log_probability(f"{line}|{line}"))
    assert total == pytest.approx(1, abs=1e-9)
    repeats = Repeats()
    sizes = range(repeats.shortest, repeats.longest + 1)
    assert math.fsum(64**n * math.exp(repeats.log_probability("a" * 4 * n)) for n in sizes) == pytest.approx(1)


def enumerated(grammar: Grammar) -> Iterator[tuple[str, float]]:
    """Yield the text and probability of every derivation, independently of the grammar's sampling and parsing."""

    def say(pieces: tuple[Piece, ...], known: Mapping[str, Word]) -> Iterator[tuple[str, Mapping[str, Word], float]]:
        if not pieces:
            yield "", known, 1.0
            return
        head = pieces[0]
        rest = pieces[1:]
        if isinstance(head, str):
            yield from ((head + text, after, p) for text, after, p in say(rest, known))
            return
        slot = grammar.slots[head.slot]
        values = [known[head.slot]] if head.slot in known else slot.words[known[slot.given].text if slot.given else ""]
        total = sum(value.weight for value in values)
        for value in values:
            chosen = {**known, head.slot: value}
            for text, after, p in say(rest, chosen):
                yield value.form(head.form) + text, after, p * value.weight / total

    def tell(number: int, known: Mapping[str, Word]) -> Iterator[tuple[str, float]]:
        if number == len(grammar.sentences):
            yield "", 1.0
            return
        for wording in grammar.sentences[number]:
            for text, after, p in say(wording.pieces, known):
                for rest, q in tell(number + 1, after):
                    yield (" " if number else "") + text + rest, wording.probability * p * q

    yield from tell(0, {})


def tiny_grammar() -> Grammar:
    names = [Word("Mia", {"he": "she"}), Word("Leo", {"he": "he"}, weight=3), Word("Tom", {"he": "he"}, weight=2)]
    foods = {
        "fox": [Word("egg", {"a": "an egg"}), Word("pie", {"a": "a pie"}, weight=4)],
        "cow": [Word("hay", {"a": "hay"})],
    }
    slots = [
        free("hero", names),
        other_than("friend", "hero", names),
        free("animal", [Word("fox"), Word("cow", weight=2)]),
        Slot("food", foods, given="animal"),
    ]
    first = sentence("{hero} is a {animal}.", "A {animal} was {hero}.")
    second = sentence(
        "{hero:he} gave {friend} {food:a}.", "{friend} and {hero} ate {food:a}.", "The {food} fed {friend}."
    )
    return Grammar(slots, [first, second])


def test_a_small_grammar_agrees_with_its_enumeration() -> None:
    grammar = tiny_grammar()
    texts = list(enumerated(grammar))
    assert len({text for text, _ in texts}) == len(texts) == 2 * 3 * 2 * 3 * 3
    assert math.fsum(p for _, p in texts) == pytest.approx(1, abs=1e-12)
    for text, p in texts:
        assert grammar.derivations(text) == [pytest.approx(math.log(p))]
    assert -math.fsum(p * math.log(p) for _, p in texts) == pytest.approx(grammar.entropy(), abs=1e-12)
    assert math.fsum(p * len(text) for text, p in texts) == pytest.approx(grammar.mean(len), abs=1e-12)


@settings(max_examples=40)
@given(st.data())
def test_random_grammars_agree_with_their_enumeration(data: st.DataObject) -> None:
    """For random weights and dependencies, the closed form equals the enumerated entropy, and samples parse."""
    weights = st.sampled_from([0.5, 1.0, 2.0, 3.5])
    first = [Word(name, weight=data.draw(weights)) for name in ("ax", "bx", "cx")[: data.draw(st.integers(1, 3))]]
    second = {
        word.text: [Word(name, weight=data.draw(weights)) for name in ("dog", "elk")[: data.draw(st.integers(1, 2))]]
        for word in first
    }
    share = data.draw(st.floats(0.1, 0.9))
    wordings = [
        Wording(("see ", Mention("one", ""), "-", Mention("two", "")), share),
        Wording((Mention("one", ""), " has ", Mention("two", "")), 1 - share),
    ]
    grammar = Grammar(
        [free("one", first), Slot("two", second, given="one")], [wordings, sentence("{two}.", "so {one}.")]
    )
    texts = list(enumerated(grammar))
    assert -math.fsum(p * math.log(p) for _, p in texts) == pytest.approx(grammar.entropy(), abs=1e-12)
    assert math.fsum(p * len(text) for text, p in texts) == pytest.approx(grammar.mean(len), abs=1e-12)
    text = grammar.sample(random.Random(data.draw(st.integers(0, 999))))
    assert math.exp(grammar.log_probability(text)) == pytest.approx(dict(texts)[text])


def test_an_ambiguous_text_has_the_sum_of_its_derivations() -> None:
    grammar = Grammar([free("x", [Word("a"), Word("ab")]), free("y", [Word("bc"), Word("c")])], [sentence("{x}{y}")])
    assert len(grammar.derivations("abc")) == 2
    assert grammar.log_probability("abc") == pytest.approx(math.log(0.5))


def test_grammars_that_break_the_rule_are_refused() -> None:
    slots = [free("x", [Word("a")]), Slot("y", {"a": [Word("b")]}, given="x")]
    with pytest.raises(ValueError, match="different slots"):
        Grammar(slots, [sentence("{x}{y}", "{x}")])
    with pytest.raises(ValueError, match="depends"):
        Grammar(slots, [sentence("{y}{x}")])
    with pytest.raises(ValueError, match="no sentence uses"):
        Grammar(slots, [sentence("{x}")])


def beginnings(grammar: Grammar, pieces: tuple[Piece, ...], reach: int = 12) -> set[str]:
    """Return the possible beginnings of a sequence of pieces, of at least `reach` characters or the whole sequence."""
    begun = {""}
    for piece in pieces:
        if all(len(text) >= reach for text in begun):
            break
        if isinstance(piece, str):
            forms = {piece}
        else:
            forms = {word.form(piece.form) for options in grammar.slots[piece.slot].words.values() for word in options}
        begun = {text if len(text) >= reach else text + form for text in begun for form in forms}
    return begun


def clash(one: set[str], other: set[str]) -> bool:
    """Return whether a text can begin with a string of each set."""
    return any(a.startswith(b) or b.startswith(a) for a in one for b in other)


def test_every_choice_in_a_story_is_determined_by_the_text() -> None:
    """No two choices can begin alike, so random choices and texts correspond one to one for all stories."""
    grammar = story_grammar()
    for wordings in grammar.sentences:
        for one, other in combinations(wordings, 2):
            same = 0
            while one.pieces[same] == other.pieces[same]:
                same += 1
            assert not clash(beginnings(grammar, one.pieces[same:]), beginnings(grammar, other.pieces[same:]))
        for wording in wordings:
            for mention in (piece for piece in wording.pieces if isinstance(piece, Mention)):
                for options in grammar.slots[mention.slot].words.values():
                    forms = [{word.form(mention.form)} for word in options]
                    if mention.form not in ("he", "him"):  # this is never a first mention: see the next test
                        assert not any(clash(one, other) for one, other in combinations(forms, 2)), mention


def test_pronouns_never_come_first() -> None:
    grammar = story_grammar()
    seen: set[str] = set()
    for wordings in grammar.sentences:
        for wording in wordings:
            known = set(seen)
            for piece in wording.pieces:
                if isinstance(piece, Mention):
                    assert piece.slot in known or piece.form not in ("he", "him")
                    known.add(piece.slot)
        seen = known


def test_no_choice_in_a_story_is_rare() -> None:
    grammar = story_grammar()
    rarest = min(p for name in grammar.slots for _, p in grammar.marginal(name) if grammar.slots[name].given == "")
    assert rarest >= 0.05
    assert min(wording.probability for wordings in grammar.sentences for wording in wordings) >= 0.05


@settings(max_examples=60)
@given(index=st.integers(0, 300), place=st.integers(0, 10_000), letter=st.sampled_from("aeqz .M"))
def test_a_changed_letter_gives_another_story_or_none(index: int, place: int, letter: str) -> None:
    stories = Stories()
    text = list(stories.documents(index + 1, seed=8))[index]
    at = place % len(text)
    changed = text[:at] + letter + text[at + 1 :]
    if changed != text:
        assert stories.log_probability(changed) == -math.inf
    assert len(story_grammar().derivations(text)) == 1
