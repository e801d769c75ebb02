"""`talk`: every answer is a stated fact, facts are held out, and simple heuristics are seldom right."""

from __future__ import annotations

from collections import Counter

import pytest

from glassformer.corpora import find_conversation_corpus
from glassformer.corpora.talk import FACT_KINDS, FACTS, MOST_PEOPLE, is_held_out, parse_facts

TALK = find_conversation_corpus("talk")
HELD_OUT = find_conversation_corpus("talk-held-out")


def asked(messages: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    """Return, for each question, the stated facts, the question and its answer."""
    told, _, first = messages[0]["content"].rpartition(". ")
    told += "."
    questions = [first, *(message["content"] for message in messages[2::2])]
    answers = [message["content"] for message in messages[1::2]]
    return [(told, question, answer) for question, answer in zip(questions, answers, strict=True)]


@pytest.mark.parametrize("name", ["talk", "talk-held-out"])
def test_every_answer_is_the_right_one(name: str) -> None:
    corpus = find_conversation_corpus(name)
    for messages in corpus.conversations(300, seed=5):
        assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        for told, question, answer in asked(messages):
            facts = parse_facts(told)
            assert len(facts) == FACTS
            assert len({fact.kind for fact in facts}) == FACTS
            assert len({fact.name for fact in facts}) <= MOST_PEOPLE
            assert len(asked(messages)) <= FACTS
            assert corpus.answer(question, told) == answer
            assert answer in told
    assert corpus.answer("Where does Ada live?", "Ada has the crow.") is None


def test_there_are_six_kinds_of_questions_and_56_values() -> None:
    assert len(FACT_KINDS) == len({kind.question_template for kind in FACT_KINDS}) == 6
    assert all(len(set(kind.values)) == len(kind.values) == 56 for kind in FACT_KINDS)
    assert len({value for kind in FACT_KINDS for value in kind.values}) == 6 * 56


def test_held_out_facts_occur_in_only_one_corpus() -> None:
    def held_out(corpus_asked: list[tuple[str, str, str]]) -> list[bool]:
        found = []
        for told, question, _ in corpus_asked:
            (fact,) = [fact for fact in parse_facts(told) if fact.question == question]
            found.append(is_held_out(fact))
        return found

    for messages in TALK.conversations(300, seed=1):
        assert not any(held_out(asked(messages)))
    for messages in HELD_OUT.conversations(300, seed=1):
        assert held_out(asked(messages)) == [False] * (len(messages) // 2 - 1) + [True]


def test_conversations_depend_only_on_seed_and_number() -> None:
    few = list(TALK.conversations(20, seed=3))
    assert list(TALK.conversations(40, seed=3))[:20] == few
    assert list(TALK.conversations(20, seed=4)) != few
    assert not any(set("\n\t") & set(message["content"]) for messages in few for message in messages)


def test_simple_heuristics_are_seldom_right() -> None:
    """The most frequent answer is right for less than 3 % of the questions, the last stated fact for less than 30 %."""
    last = [asked(messages)[-1] for messages in HELD_OUT.conversations(1000, seed=1)]
    answers = Counter(answer for _, _, answer in last)
    assert answers.most_common(1)[0][1] < 30
    told_last = [answer == parse_facts(told)[-1].answer for told, _, answer in last]
    assert sum(told_last) < 300
